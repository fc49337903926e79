"""What a trainer reads: canonical rows, their splits and bundle, views in the form of each trainer, the objective."""
