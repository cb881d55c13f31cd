"""What every runtime shares: runs and their journals, node runs, processes, probes, files beside the work."""
