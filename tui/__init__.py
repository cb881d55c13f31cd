"""The terminal UI of `span top`."""
