"""Data of object stores beside the work: copied to the node before the start, sent from it while the work runs."""
