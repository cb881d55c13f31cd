#!/bin/bash
# A sweep: four learning rates, two at a time. From the top of the project:
#     span sbatch examples/sbatch/array.sh
#SBATCH --job-name=sweep
#SBATCH --output=sweep-%A_%a.out
#SBATCH --array=0-3%2
#SBATCH --cpus-per-task=1 --mem=200M
#SBATCH --time=5

program=${1:-examples/train_eval/train.py}
rates=(0.03 0.1 0.3 1.0)
rate=${rates[$SLURM_ARRAY_TASK_ID]}

echo "element $SLURM_ARRAY_TASK_ID of array $SLURM_ARRAY_JOB_ID: learning rate $rate"
exec "${PYTHON:-python3}" "$program" --learning-rate "$rate" --epochs 1000 \
    --checkpoint-dir "sweep-$SLURM_ARRAY_JOB_ID/rate-$rate"
