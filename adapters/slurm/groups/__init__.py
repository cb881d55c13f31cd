"""Groups as lists of native jobs: one allocation, or a job for each task: placement, script, projection, orders."""
