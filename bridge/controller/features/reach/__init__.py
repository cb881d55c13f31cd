"""Trials of the ways between two clusters."""
