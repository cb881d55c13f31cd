"""Steps of srun in sacct, squeue, scontrol and sstat, and sattach (reference: their man pages)."""

from __future__ import annotations

from dataclasses import replace

from tests.differential.case import Case, case, over, step

FACTS = "JobID,JobIDRaw,JobName,Partition,State,ExitCode,DerivedExitCode,AllocCPUS,NCPUS,NTasks,NNodes,NodeList,Layout"
SCRIPT = """\
#!/bin/sh
srun true
srun -n 1 -J named sh -c 'exit 3'
srun -n 1 sh -c 'kill -9 $$'
srun -n 1 sh -c 'kill -SEGV $$'
srun no-such-program
srun -n 1 --exact true
srun -n 2 sh -c 'exit $((SLURM_PROCID + 4))'
srun -n 1 -J '' true
"""
# Slurm's accounting may hear of steps before their job, and has another name for that then: those lines are left out.
STEPS = ",".join(f"{{1}}.{name}" for name in ("batch", *range(8)))
SETTLED = step("sacct -n -X -P -j {1} -o State", until="^(COMPLETED|FAILED|CANCELLED)")
# {1} is a job of two tasks that has run steps and has ended.
ENDED = ("sbatch -J steps -n 2 --mem=10 -o o job.sh", over(), SETTLED)
# {1} is a job of two tasks whose step 1 runs.
RUNNING = (
    "sbatch -J busy -n 2 --mem=10 -t 10 -o o --wrap 'srun true; srun sh -c \"echo up; exec sleep 60\"'",
    step("cat o", until="up"),
    step("sacct -n -P -j {1}.1 -o State", until="RUNNING"),
)


def _ended(name: str, line: str) -> Case:
    return case(f"sacct/steps/{name}", *ENDED, line, files={"job.sh": SCRIPT})


def _running(name: str, *lines: str) -> Case:
    return case(name, *RUNNING, *lines)


CASES: list[Case] = [
    _ended("facts", f"sacct -n -P -j {STEPS} -o {FACTS}"),
    _ended("lines", f"sacct -n -P -j {STEPS} -o JobID,SubmitLine,ReqCPUFreq,ReqTRES,AllocNodes,ReqMem,User"),
    _ended("table", f"sacct -j {STEPS}"),
    _ended("brief", "sacct -j {1} -b"),
    _ended("jobs-only", "sacct -j {1} -X -P -o JobID,DerivedExitCode"),
    _ended("one", "sacct -n -j {1}.1 -P -o JobID,State,ExitCode"),
    _ended("two", "sacct -n -j {1}.1,{1}.batch -P -o JobID,State,ExitCode"),
    _ended("none", "sacct -n -j {1}.99 -P -o JobID,State,ExitCode"),
    _ended("one-with-X", "sacct -n -X -j {1}.1 -P -o JobID,State"),
    case(
        "sacct/steps/alone",
        "salloc --mem=10 -n 2 srun echo one",
        SETTLED,
        "sacct -n -P -j {1} -o JobID,State,ExitCode,NTasks",
        "sacct -n -P -j {1}.0 -o JobID,JobName,State,SubmitLine",
    ),
    case(
        "sacct/steps/elements",
        "sbatch -a 3-4 --mem=10 -o o%a --wrap 'srun true'",
        step("sacct -n -X -P -j {1} -o State", until="^COMPLETED\nCOMPLETED"),
        "sacct -n -P -j {1} -o JobID,State,ExitCode",
    ),
    case(
        "sacct/steps/cancelled",
        *RUNNING,
        "scancel {1}",
        over(),
        step("sacct -n -P -j {1}.1 -o State", until="CANCELLED"),
        "sacct -n -P -j {1} -o JobID,State,ExitCode",
    ),
    _running("sacct/steps/running", "sacct -n -P -j {1}.batch,{1}.0,{1}.1 -o JobID,State,ExitCode,End,NTasks"),
    _running("squeue/steps/job", "squeue -h -s -j {1} -o '%i|%j|%P|%u|%A|%l|%b|%N'"),
    _running("squeue/steps/one", "squeue -h -s {1}.1 -o '%i %j'"),
    _running("squeue/steps/job-alone", "squeue -s {1}"),
    _running("squeue/steps/gone", "squeue -h -s {1}.0", "squeue -h -s {1}.99"),
    _running("squeue/steps/letter", "squeue -h -s -j {1} -o '%n|%i'"),
    _running("scontrol/steps/gone", "scontrol show step {1}.0", "scontrol show step {1}.99"),
    _running("sstat/steps/job", "sstat -P -j {1} -o JobID,NTasks", "sstat -P -a -j {1} -o JobID,NTasks"),
    _running("sstat/steps/one", "sstat -P -j {1}.1 -o JobID,NTasks", "sstat -n -P -o JobID {1}.1"),
    _running("sstat/steps/gone", "sstat -P -j {1}.0 -o JobID,NTasks"),
    _running("sattach/layout", "sattach --layout {1}.1"),
    _running("sattach/gone", "sattach {1}.0", "sattach {1}.99", "sattach --layout {1}.0"),
    _running("sattach/filter", "sattach --output-filter=x {1}.1", "sattach --error-filter=all {1}.1"),
    *(case(f"sattach/{words or 'nothing'}", f"sattach {words}") for words in ("", "abc", "70001", "--nope", "-u")),
    *(case(f"sattach/{words}", f"sattach {words}") for words in ("999999.0", "999999.x", "999999.0 1")),
    *(
        replace(
            case(
                f"sattach/output{words}",
                "sbatch -n 2 --mem=10 -o o --wrap 'srun -l sh -c \"echo up; echo bad >&2; sleep 3; echo down\"'",
                step("cat o", until="up"),
                f"sattach{words} {{1}}.0",
            ),
            unordered=True,
        )
        for words in ("", " -l", " --output-filter=1", " --label --error-filter=0")
    ),
]
