"""Logs in `span top`: a window on a file of any size, and what is shown of its lines. Nothing here imports Textual."""
