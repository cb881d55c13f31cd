"""Readers: job files, batch scripts and option values, parsed into the model."""
