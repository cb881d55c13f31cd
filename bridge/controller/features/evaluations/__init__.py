"""Evaluations: watches of checkpoints, the jobs that are made of them, and their results."""
