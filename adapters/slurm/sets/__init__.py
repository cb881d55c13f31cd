"""A group as a set: one native job for each task, decided by the daemon, so that one task is replaced alone."""
