"""The supervisors of this machine: one process a host, forked from a server that has imported everything."""
