"""`span check`: what is tried on a cluster, and what each answer means."""
