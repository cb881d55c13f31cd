"""From a request to a durable job: read, checked, placed, answered."""
