"""The worker of a pool: takes launches from the daemon and runs them beside each other."""
