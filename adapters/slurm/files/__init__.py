"""Files of runs on the cluster: the application, references to shared files, logs."""
