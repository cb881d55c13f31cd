"""What pods print: followed, kept in files, written where a script asked for it."""
