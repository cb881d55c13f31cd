"""Validation: documents with positions, and what a user is told about their mistakes."""
