"""A group as a set: one native job for each task; the daemon decides, and can replace a single task."""
