"""The terminal: what it can show, how it is written to, and how it is left."""
