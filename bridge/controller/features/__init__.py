"""What goes beyond one job on one cluster: arrays, dependencies, schedules, failover."""
