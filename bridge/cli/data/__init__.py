"""Commands for data in object stores."""
