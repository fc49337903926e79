"""What teams are given to do: the built-in bank of functions, tasks composed of them, and benchmark files of a user's own."""
