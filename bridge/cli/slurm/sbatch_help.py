"""What `sbatch --help` and `sbatch --usage` say: every option, with what becomes of it outside Slurm."""

from __future__ import annotations

USAGE = """\
Usage: sbatch [OPTION...] [: OPTION...] SCRIPT [ARGUMENT...]
       sbatch [OPTION...] --wrap=COMMAND
       sbatch [OPTION...] < SCRIPT
"""

HELP = (
    USAGE
    + """
Options stand before SCRIPT, in SBATCH_* variables or in #SBATCH lines; the first of these wins. Long names may be
shortened. Those marked * reach a Slurm cluster; elsewhere they are accepted with a note.

What runs, and where:
  -A, --account=NAME           account to charge
  -a, --array=INDICES          many jobs of one script: 0-9, 1,3,7, 0-100:5%10 (at most 10 at a time)
  -D, --chdir=DIR              working directory; --output and its like are relative to it
  -M, --clusters=NAMES         clusters to try in order; all
      --comment=TEXT           any text
      --export=NAMES|ALL|NONE  variables that the job gets; NAME=VALUE sets one
      --get-user-env[=SECONDS] * load the login environment
  -J, --job-name=NAME          name of the job
  -p, --partition=NAMES        partition, or several of which the first that takes the job is used
      --prefer=FEATURES        * features that are liked
  -q, --qos=NAME               quality of service
      --reservation=NAMES        reservation to run in
      --wckey=KEY              * workload characterisation key
      --wrap=COMMAND           a command instead of a script

When:
  -b, --begin=TIME             not before: now+1hour, 16:00, tomorrow, teatime, 2030-01-31T12:00
      --deadline=TIME          cancelled when it cannot end by then
  -d, --dependency=LIST        after:ID[+MINUTES], afterany:ID, afterok:ID, afternotok:ID, aftercorr:ID, singleton;
                               with , for all or ? for any
  -H, --hold                   wait for a release
      --kill-on-invalid-dep=yes|no  cancel when a dependency can never be met
      --nice[=N]               lower the priority by N (100)
      --priority=N|TOP         set the priority; 0 holds
      --switches=N[@TIME]      * switches at most, and how long to wait for that
  -t, --time=LIMIT             minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED
      --time-min=LIMIT         * a lower limit will do, if that starts it earlier

How much:
      --mem=SIZE               memory of a node: 4000M, 4G; 0 is all of it
      --mem-per-cpu=SIZE       memory of a CPU
      --mem-per-gpu=SIZE       memory of a GPU
      --mincpus=N              CPUs of a node at least
  -N, --nodes=MIN[-MAX]        nodes
  -n, --ntasks=N               tasks, for which srun starts processes
      --ntasks-per-node=N      tasks of a node; also --tasks-per-node
      --ntasks-per-core=N, --ntasks-per-socket=N, --ntasks-per-gpu=N, --ntasks-per-tres=N  *
  -c, --cpus-per-task=N        CPUs of a task
      --cpus-per-gpu=N         CPUs of a GPU
  -G, --gpus=[TYPE:]N          GPUs in all
      --gpus-per-node=[TYPE:]N, --gpus-per-task=[TYPE:]N  GPUs of each
      --gpus-per-socket=[TYPE:]N  *
      --gres=NAME[[:TYPE]:N]   generic resources of a node; help lists them
      --gres-flags=FLAGS       *
      --tres-per-task=LIST     *
  -L, --licenses=NAMES         * licenses
      --tmp=SIZE               * disk

Which nodes:
      --batch=FEATURES         * features of the node of the script
      --cluster-constraint=LIST  * features of the cluster
  -C, --constraint=FEATURES    * A&B, A|B, [A|B], A*2
      --contiguous             * neighbours
  -x, --exclude=HOSTS          not these
      --exclusive[=user|mcs|topo]  * not shared
  -F, --nodefile=FILE          those in a file
  -w, --nodelist=HOSTS         these; a word with / is a file
  -s, --oversubscribe          * shared
  -O, --overcommit             * several tasks on a CPU
      --segment=N, --consolidate-segments, --spread-job, --use-min-nodes  *

Files:
  -e, --error=FILE             errors; joined with the output where not given
  -i, --input=FILE             input
  -o, --output=FILE            output (slurm-%j.out, arrays slurm-%A_%a.out); none is /dev/null;
                               %j id, %A %a array, %x name, %u user, %N node
      --open-mode=append|truncate

When it ends or fails:
      --mail-type=TYPES, --mail-user=USER  *
  -k, --no-kill[=off]          * go on when a node fails
      --requeue, --no-requeue  whether it may run again from the start
      --signal=[B:]SIGNAL[@SECONDS]  a signal before the time limit; B: to the script alone

Placement on a node:
  -B, --extra-node-info=S[:C[:T]]  *
  -m, --distribution=TYPE      *
  -S, --core-spec=N            *
      --cores-per-socket=N, --sockets-per-node=N, --threads-per-core=N, --thread-spec=N  *
      --cpu-freq=SPEED, --gpu-bind=TYPE, --gpu-freq=SPEED, --hint=TYPE, --mem-bind=TYPE, --tres-bind=TYPE  *
      --network=TYPE, --power=FLAGS  *

Rarely needed:
      --acctg-freq=N, --bb=SPEC, --bbf=FILE, --context=TEXT, --delay-boot=MINUTES, --extra=TEXT, --ignore-pbs  *
      --mcs-label=LABEL, --oom-kill-step[=0|1], --profile=TYPES, --propagate[=LIMITS], --resv-ports[=N]  *
      --stepmgr, --tree-width=N, --wait-all-nodes=0|1  *
      --container=DIR, --container-id=ID, --reboot  a Slurm cluster only
      --export-file=FILE, --gid=GROUP, --uid=USER  refused

What the command does:
      --parsable               print the id alone, with -M ID;CLUSTER
  -Q, --quiet                  print nothing but errors
      --test-only              say when and where it would start, submit nothing
  -v, --verbose                say what was asked for
  -W, --wait                   wait for the end; exit with the job's code, the highest of an array's
  -h, --help      --usage      -V, --version

Overspan's own:
      --hold-on-failure=DELAY  how long a failed job keeps its nodes
      --job-group=ID           join a group; inside a group that is the default
      --no-job-group           join none
      --pool=NAME              run on a worker of this pool
      --json                   print the answer as one JSON document

Examples:
  sbatch train.sh 0.001
  sbatch --wrap='python train.py' -G 1 -t 2:00:00
  span plan train.sh           print what would be sent
"""
)
