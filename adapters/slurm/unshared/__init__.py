"""Clusters, or nodes, that do not see the submitter's files: staging, inline files, relays."""
