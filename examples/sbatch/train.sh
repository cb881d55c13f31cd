#!/bin/bash
# A training run that can be interrupted and goes on where it was. From the top of the project:
#     span sbatch examples/sbatch/train.sh
# From elsewhere, name the program and, to continue an earlier run, its checkpoints:
#     span sbatch train.sh path/to/train.py checkpoints-42
#SBATCH --job-name=train
#SBATCH --output=train-%j.out
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=1
#SBATCH --mem=200M
#SBATCH --time=00:05:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue

program=${1:-examples/train_eval/train.py}
checkpoints=${2:-checkpoints-$SLURM_JOB_ID}

# USR1, a minute before the time limit: save and go on. TERM, on cancel or preemption: save and end.
"${PYTHON:-python3}" "$program" --checkpoint-dir "$checkpoints" &
trainer=$!
trap 'kill -USR1 $trainer' USR1
trap 'kill -TERM $trainer' TERM

# A trapped signal ends a wait, not the trainer; the last wait gives the trainer's exit code.
while kill -0 $trainer 2>/dev/null; do
    wait $trainer
done
wait $trainer
