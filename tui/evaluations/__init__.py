"""Evaluations of checkpoints: what the daemon tells of them, their lines, and the plot of their scores."""
