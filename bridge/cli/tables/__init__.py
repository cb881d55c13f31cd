"""Tables and documents in Slurm's layouts: of jobs, steps, nodes and the accounting."""
