"""Steps: what `srun` starts inside an allocation, on this node and through the daemons of the others."""
