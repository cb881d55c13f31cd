#!/bin/bash
# Two unlike parts in one job: a leader with more memory, and two workers with a node each.
#SBATCH --job-name=unlike
#SBATCH --output=unlike-%j.out
#SBATCH --time=1
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=1 --mem=200M
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --mem=100M

echo "job $SLURM_JOB_ID has $SLURM_HET_SIZE components"
srun --het-group=0 bash -c 'echo "leader on $(hostname)"' \
    : --het-group=1 bash -c 'echo "worker $SLURM_PROCID on $(hostname)"'
