"""The bridge (`overspan.bridge`): what jobs are, what follows from events, the daemon, the commands."""
