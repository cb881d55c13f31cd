"""The terminal UI of `span top` (`overspan.tui`)."""
