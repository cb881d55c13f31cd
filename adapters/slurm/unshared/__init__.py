"""Clusters and nodes that do not see the submitter's files: staging, inline files, relays."""
