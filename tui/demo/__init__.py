"""The demonstration: a simulated lab in place of the daemon, for trying `span top` and for its pictures."""
