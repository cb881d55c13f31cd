"""scancel, scontrol, srun, salloc and the small verbs (reference: their man pages)."""

from __future__ import annotations

from dataclasses import replace

from tests.differential.case import HELD, WRAP, Case, case, lists, over, shown, step

LISTS = lists(__file__)


def _words(line: str) -> str:
    verb, _, words = line.partition(" ")
    return f"{verb}/{words or 'nothing'}"


def _inside(line: str) -> Case:
    text = f"#!/bin/sh\n{line}\necho rc $?\n"
    files = {"job.sh": text, "conf": "0 echo zero\n1 echo one %t\n"}
    made = case(
        f"{_words(line)}/inside",
        "sbatch -J inside -n 3 --mem=100 -o job.out job.sh",
        over(),
        "cat job.out",
        files=files,
    )
    return replace(made, unordered=True)  # the tasks of a step write side by side


CASES: list[Case] = [
    *(case(f"{_words(line)}/alone", line) for line in LISTS["alone"]),
    *(
        case(
            f"scontrol/update {text}",
            f"{HELD} -t 10 {WRAP}",
            f"scontrol update jobid={{1}} {text}",
            shown("%j|%l|%k|%y|%P|%C|%D|%m|%S|%E|%r|%a|%b"),
        )
        for text in LISTS["updates"]
    ),
    # With an elder of a name that no other case has: `singleton` looks at all jobs of a name.
    case(
        "scontrol/update to a singleton",
        f"{HELD} -J updated-singleton {WRAP}",
        f"{HELD} -J updated-singleton {WRAP}",
        "scontrol update jobid={2} Dependency=singleton",
        shown("%E|%r|%t", "{2}"),
    ),
    *(_inside(line) for line in LISTS["srun"]),
    case("scancel/held", f"{HELD} {WRAP}", "scancel {1}", shown("%t %r"), "scancel {1}"),
    case("scancel/verbose", f"{HELD} {WRAP}", "scancel -v {1}", shown("%t")),
    case("scancel/quiet", f"{HELD} {WRAP}", "scancel -Q {1}", shown("%t")),
    case("scancel/signal-pending", f"{HELD} {WRAP}", "scancel -s USR1 {1}", shown("%t")),
    case("scancel/signal-after-id", f"{HELD} {WRAP}", "scancel {1} --signal SIGTERM", shown("%t")),
    case("scancel/batch-pending", f"{HELD} {WRAP}", "scancel -b -s USR1 {1}", shown("%t")),
    case("scancel/two", f"{HELD} {WRAP}", f"{HELD} {WRAP}", "scancel {1} {2}", shown("%t"), shown("%t", "{2}")),
    case("scancel/comma", f"{HELD} {WRAP}", f"{HELD} {WRAP}", "scancel {1},{2}", shown("%t"), shown("%t", "{2}")),
    case("scancel/name", f"{HELD} -J cancel-me {WRAP}", "scancel -n cancel-me", shown("%t")),
    case(
        "scancel/name-state",
        f"{HELD} -J cancel-me-too {WRAP}",
        "scancel -t R -n cancel-me-too",
        shown("%t"),
        "scancel -t PENDING -n cancel-me-too",
        shown("%t"),
    ),
    case("scancel/id-wrong-name", f"{HELD} -J x {WRAP}", "scancel -n y {1}", shown("%t")),
    case("scancel/id-wrong-state", f"{HELD} {WRAP}", "scancel -t R {1}", shown("%t")),
    case(
        "scancel/array-element",
        f"{HELD} -a 1-4 {WRAP}",
        "scancel {1}_2",
        "squeue -h -j {1} -o %i",
        "squeue -h -r -t all -j {1} -o '%K %t'",
    ),
    case(
        "scancel/array-range",
        f"{HELD} -a 1-6 {WRAP}",
        "scancel {1}_[2-4]",
        "squeue -h -j {1} -o %i",
        "scancel {1}_9",
        "scancel {1}",
        "squeue -h -j {1}",
    ),
    case("scancel/array-list", f"{HELD} -a 1-6 {WRAP}", "scancel {1}_[1,3,5-6]", "squeue -h -j {1} -o %i"),
    case(
        "scancel/array-bad",
        f"{HELD} -a 1-6 {WRAP}",
        "scancel {1}_x",
        "scancel {1}_[x]",
        "scancel {1}_[1-",
        "squeue -h -j {1} -o %i",
    ),
    case("scancel/array-signal", f"{HELD} -a 1-6 {WRAP}", "scancel -s USR1 {1}_2"),
    case(
        "scancel/component", f"{HELD} -n1 : -n1 {WRAP}", "scancel {1}+1", shown("%i %t"), "scancel {1}", shown("%i %t")
    ),
    case(
        "scancel/running",
        "sbatch -o o --mem=10 --wrap 'echo up; exec sleep 60'",
        step("cat o", until="up"),
        "scancel {1}",
        over(),
        shown("%t %r"),
        step("sacct -n -X -P -j {1} -o State", until="CANCELLED"),
        "sacct -n -X -P -j {1} -o State,ExitCode",
    ),
    case(
        "scancel/running-batch-signal",
        "sbatch -o o --mem=10 --wrap 'trap \"echo got; exit 5\" USR1; echo up; while :; do sleep 0.1; done'",
        step("cat o", until="up"),
        "scancel -b -s USR1 {1}",
        over(),
        "cat o",
        shown("%t"),
    ),
    case(
        "scancel/running-full-signal",
        "sbatch -o o --mem=10 --wrap 'trap \"echo got; exit 5\" USR1; echo up; while :; do sleep 0.1; done'",
        step("cat o", until="up"),
        "scancel -f -s USR1 {1}",
        over(),
        "cat o",
        shown("%t"),
    ),
    case(
        "scancel/running-steps-signal",
        "sbatch -o o --mem=10 --wrap 'trap \"echo got\" USR1; echo up; sleep 1; echo end'",
        step("cat o", until="up"),
        "scancel -s USR1 {1}",
        over(),
        "cat o",
        shown("%t"),
    ),
    case(
        "scancel/running-kill-signal",
        "sbatch -o o --mem=10 --wrap 'echo up; sleep 60'",
        step("cat o", until="up"),
        "scancel -s KILL {1}",
        over(),
        shown("%t %r"),
        step("sacct -n -X -P -j {1} -o State", until="CANCELLED|FAILED"),
        "sacct -n -X -P -j {1} -o State,ExitCode",
    ),
    case(
        "scontrol/hold",
        f"sbatch --begin=now+1hour {WRAP}",
        "scontrol hold {1}",
        shown("%t %r %p"),
        "scontrol release {1}",
        shown("%t %r"),
    ),
    case(
        "scontrol/uhold",
        f"sbatch --begin=now+1hour {WRAP}",
        "scontrol uhold {1}",
        shown("%t %r"),
        "scontrol release {1}",
        shown("%t %r"),
    ),
    case(
        "scontrol/hold-two",
        f"sbatch --begin=now+1hour {WRAP}",
        f"sbatch --begin=now+1hour {WRAP}",
        "scontrol hold {1} {2}",
        "scontrol hold {1},{2}",
        shown("%r"),
        shown("%r", "{2}"),
    ),
    case(
        "scontrol/hold-name",
        f"sbatch --begin=now+1hour -J by-name {WRAP}",
        "scontrol hold jobname=by-name",
        shown("%r"),
    ),
    case(
        "scontrol/hold-element",
        f"sbatch --begin=now+1hour -a 1-4 {WRAP}",
        "scontrol hold {1}_2",
        step("squeue -h -r -j {1} -o '%K %r'", until="4 BeginTime"),
        "squeue -h -r -j {1} -o '%K %r'",
    ),
    case("scontrol/requeue-pending", f"{HELD} {WRAP}", "scontrol requeue {1}", shown("%t %r")),
    case("scontrol/suspend-pending", f"{HELD} {WRAP}", "scontrol suspend {1}", "scontrol resume {1}"),
    case(
        "scontrol/suspend-running",
        "sbatch -o o --mem=10 --wrap 'echo up; sleep 60'",
        step("squeue -h -j {1} -o %t", until="R"),
        "scontrol suspend {1}",
    ),
    case(
        "scontrol/requeue-running",
        "sbatch -o o --mem=10 --wrap 'echo up; sleep 60'",
        step("squeue -h -j {1} -o %t", until="R"),
        "scontrol requeue {1}",
        # Slurm lets it wait for two minutes, which the local cluster need not.
        step("squeue -h -j {1} -o %t", until="PD|R"),
    ),
    case(
        "scontrol/requeuehold-running",
        "sbatch -o o --mem=10 --wrap 'echo up; sleep 60'",
        step("squeue -h -j {1} -o %t", until="R"),
        "scontrol requeuehold {1}",
        step("squeue -h -j {1} -o %t", until="PD"),
        shown("%t %r"),
    ),
    case(
        "scontrol/time-min",
        f"{HELD} -t 10 --time-min=3 -J brief --mem=100 {WRAP}",
        "squeue -h -j {1} -O MinTime:20",
        "scontrol show job {1}",
    ),
    case("scontrol/top", f"{HELD} {WRAP}", "scontrol top {1}"),
    case(
        "scontrol/throttle",
        f"{HELD} -a 1-4%1 {WRAP}",
        "scontrol update jobid={1} ArrayTaskThrottle=3",
        "squeue -h -j {1} -o %i",
        "scontrol update jobid={1} ArrayTaskThrottle=0",
        "squeue -h -j {1} -o %i",
    ),
    case(
        "scontrol/update-running",
        "sbatch -t 10 -o o --mem=10 --wrap 'echo up; sleep 60'",
        step("squeue -h -j {1} -o %t", until="R"),
        "scontrol update jobid={1} timelimit=5",
        shown("%l"),
        "scontrol update jobid={1} timelimit=20",
        # What runs has its new limit a moment later.
        step("sh -c 'sleep 1; echo on'", until="on"),
        shown("%l"),
        "scontrol update jobid={1} numcpus=2",
        "scontrol update jobid={1} jobname=late",
        shown("%j"),
    ),
    case(
        "scontrol/write-script",
        f"{HELD} job.sh",
        "scontrol write batch_script {1}",
        "sh -c 'cat slurm-*.sh'",
        "scontrol write batch_script {1} -",
        "scontrol write batch_script {1} to.sh",
        "cat to.sh",
        files={"job.sh": "#!/bin/sh\necho a\n"},
    ),
    case(
        "scontrol/show-held",
        f"{HELD} -J shown -t 90 -n 2 -c 2 --mem=100 --comment=note -A acc {WRAP}",
        step("sh -c 'true'"),
        "scontrol show job {1}",
    ),
    case(
        "scontrol/show-array", f"{HELD} -J shown -a 1-3%2 {WRAP}", "scontrol show job {1}", "scontrol -o show job {1}"
    ),
    case(
        "scontrol/hostnames-variable",
        step("scontrol show hostnames", SLURM_NODELIST="a[1-2]"),
        step("scontrol show hostnames", SLURM_JOB_NODELIST="a[1-2]"),
    ),
    replace(case("srun/missing-program/alone", "srun no-such-program"), unordered=True),
    case("srun/plain/alone", "srun --mem=10 echo hello"),
    case("srun/code/alone", "srun --mem=10 sh -c 'exit 7'"),
    case(
        "srun/ranks/alone", "srun --mem=10 -n 2 -l sh -c 'sleep 0.$SLURM_PROCID; echo $SLURM_PROCID of $SLURM_NTASKS'"
    ),
    case("srun/nothing/alone", "srun"),
    case("srun/unknown-option/alone", "srun --nope true"),
    case("srun/bad-partition/alone", "srun -p nowhere true"),
    case("srun/bad-time/alone", "srun -t abc true"),
    case("srun/impossible/alone", "srun --mem=1T true"),
    case("srun/stdin/alone", step("srun --mem=10 cat", stdin="text\n")),
    case("srun/test-only/alone", "srun --test-only --mem=10 true"),
    case("salloc/command", "salloc --mem=10 sh -c 'echo $SLURM_NTASKS'"),
    case("salloc/code", "salloc --mem=10 sh -c 'exit 7'"),
    case("salloc/srun", "salloc --mem=10 -n 2 srun -l hostname -d"),
    case("salloc/bad-partition", "salloc -p nowhere true"),
    case("salloc/unknown-option", "salloc --nope true"),
    case("salloc/missing-program", "salloc --mem=10 no-such-program"),
]
