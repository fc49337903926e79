"""What becomes training data, in which parts, how much of it and in which order; and why each run was kept or not."""
