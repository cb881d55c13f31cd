"""What runs beside the work, shipped as one zip: `__main__` has the table of its programs. Standard library only."""
