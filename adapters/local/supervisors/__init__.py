"""The processes beside the work: which one serves a launch, its start from the fork server, its death."""
