"""The bridge: what jobs are, what follows from events, and the daemon that carries it out."""
