"""Text to model: job files, batch scripts and option values."""
