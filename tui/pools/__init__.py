"""Pools in the terminal UI: lines of pools and their workers, and the queue over time."""
