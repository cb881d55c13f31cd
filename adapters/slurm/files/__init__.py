"""Files of runs on the cluster: the application, references to what runs share, logs."""
