#!/bin/bash
# The smallest batch job.
#SBATCH --job-name=hello
#SBATCH --output=hello-%j.out
#SBATCH --time=1

echo "Hello from job $SLURM_JOB_ID ($SLURM_JOB_NAME) on $(hostname)"
