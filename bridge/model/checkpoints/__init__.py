"""Checkpoints: what stands in a watched folder, which of it is a checkpoint, and when one is complete."""
