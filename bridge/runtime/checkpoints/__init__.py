"""Looks for checkpoints where they are written: one file, which runs alone on any Python 3.9."""
