"""Listings of jobs: the row that travels, the fields that show it, and tables of them. Free of the daemon's parts."""
