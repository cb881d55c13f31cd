"""What `span top` shows of schedules, as data. Pure."""
