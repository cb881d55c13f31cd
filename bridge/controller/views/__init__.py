"""What the API shows of jobs: rows, details, logs, steps, history. Nothing here changes a job."""
