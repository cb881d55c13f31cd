"""From squeue, sacct and journals to the events of launches."""
