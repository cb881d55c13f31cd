#!/usr/bin/env python3
"""Slurm's commands of an old release, as far as jobs need them: a stand-in that refuses what that release has not.

Called by the name of a command. Its jobs are in the folder above; one runs to its end at its submission. Options
and fields are those of 20.02 (the man pages), refusals are getopt's and the clients' own, with their exit codes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).absolute().parent.parent
VERSION = "20.02.7"
KILLED = 137


def take_words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


OPTIONS = {
    "sbatch": "parsable comment job-name chdir nodes ntasks ntasks-per-node cpus-per-task mem gres time signal export "
    "output error open-mode hold no-requeue requeue test-only partition account qos dependency begin wrap "
    "array kill-on-invalid-dep nice priority deadline input reservation constraint exclusive nodelist",
    "squeue": "noheader all array states jobs user Format clusters",
    "sacct": "noheader parsable delimiter duplicates allocations jobs user starttime endtime format clusters",
    "scancel": "state signal full batch quiet",
    "sinfo": "noheader Node all Format clusters",
    "srun": "nodes ntasks ntasks-per-node cpus-per-task nodelist het-group exclusive mem gres job-name export quiet "
    "kill-on-bad-exit immediate time partition account qos",
    "scontrol": "oneliner",
}
QUEUE = take_words(
    "JobArrayID JobID ArrayJobID ArrayTaskID HetJobID HetJobOffset State Reason exit_code RestartCnt UserName "
    "Partition NodeList BatchHost NumNodes SubmitTime StartTime EndTime TimeLimit TimeUsed PriorityLong Name Comment"
)
ACCOUNTS = take_words(
    "JobID JobIDRaw Partition State Reason ExitCode DerivedExitCode Submit Start End ElapsedRaw TimelimitRaw NNodes "
    "NodeList User JobName Comment"
)
NODES = take_words("NodeList Partition StateLong CPUsState Memory AllocMem Gres GresUsed Time Reason")


def main(command: str, words: list[str]) -> int:
    """Carry one command out."""
    options, rest = {}, []
    for place, word in enumerate(words):
        if not word.startswith("--"):
            rest = words[place:]
            break
        name, _, value = word[2:].partition("=")
        if name not in OPTIONS[command].split():
            print(f"{command}: unrecognized option '{word}'", file=sys.stderr)
            print(f'Try "{command} --help" for more information', file=sys.stderr)
            return 1
        options[name] = value
    return int(globals()[f"do_{command}"](options, rest))


def do_scontrol(options: dict[str, str], rest: list[str]) -> int:
    if rest[:2] == ["show", "config"]:
        print("Configuration data as of 2020\nAccountingStorageType   = accounting_storage/slurmdbd\nMessageTimeout")
        print(f"ClusterName = old\nSLURM_VERSION           = {VERSION}\nSchedulerType = sched/backfill")
    elif rest[:2] == ["show", "node"]:
        print("NodeName=n1 Arch=x86_64 NodeAddr=127.0.0.1")
    return 0


def do_sbatch(options: dict[str, str], rest: list[str]) -> int:
    script = Path(rest[0]).read_text() if rest else sys.stdin.read()
    if "test-only" in options:
        return 0
    number = next_number()
    lines = [line.split("=", 1) for line in script.splitlines() if line.startswith("#SBATCH --")]
    directives = {line[0][len("#SBATCH --") :]: line[1] if len(line) > 1 else "" for line in lines}
    output = (directives | options).get("output", f"slurm-{number}.out").replace("%j", str(number))
    with open(Path(directives.get("chdir", HOME)) / output, "wb") as log:
        done = subprocess.run(["bash", "-s"], input=script.encode(), stdout=log, stderr=log, check=False)
    job = {"name": directives.get("job-name", ""), "comment": options["comment"], "code": done.returncode}
    # Whole or not at all: a listing may be made at any moment.
    (HOME / f"{number}.new").write_text(json.dumps(job))
    (HOME / f"{number}.new").replace(HOME / f"{number}.json")
    print(number)
    return 0


def next_number() -> int:
    """A number that no other submission has."""
    number = 1
    while True:
        try:
            (HOME / f"{number}.taken").touch(exist_ok=False)
            return number
        except FileExistsError:
            number += 1


def list_jobs(options: dict[str, str]) -> list[tuple[int, dict[str, str]]]:
    wanted = set(options["jobs"].split(",")) if "jobs" in options else None
    found = []
    for path in sorted(HOME.glob("*.json"), key=lambda path: int(path.stem)):
        if wanted is not None and path.stem not in wanted:
            continue
        job, number = json.loads(path.read_text()), path.stem
        code = job["code"]
        state, reason = ("FAILED", "NonZeroExitCode") if code else ("COMPLETED", "None")
        status, pair = code << 8, f"{code}:0"
        if code == KILLED:
            # What a site with cgroups makes of it.
            state, reason, status, pair = "OUT_OF_MEMORY", "OutOfMemory", 125, "0:125"
        values = dict.fromkeys(("JobArrayID", "JobID", "ArrayJobID", "JobIDRaw"), number)
        values |= dict.fromkeys(("ArrayTaskID", "HetJobID", "HetJobOffset"), "N/A")
        values |= {"State": state, "Reason": reason, "RestartCnt": "0", "exit_code": str(status)}
        values |= {"ExitCode": pair, "DerivedExitCode": "0:0", "NumNodes": "1", "TimeLimit": "UNLIMITED"}
        values |= {"SubmitTime": "1000", "StartTime": "1001", "EndTime": "1002", "TimeUsed": "0:01"}
        values |= {"Submit": "1000", "Start": "1001", "End": "1002", "NodeList": "n1", "BatchHost": "n1"}
        values |= {"Partition": "old", "Name": job["name"], "Comment": job["comment"], "PriorityLong": "1"}
        found.append((int(number), values))
    return found


def print_format(text: str, known: list[str], rows: list[dict[str, str]]) -> int:
    """The -O form with suffixes; a field of a later release is an error that ends nothing (squeue/opts.c)."""
    fields = [field.partition(":")[::2] for field in text.split(",")]
    for name, _ in fields:
        if name.lower() not in {field.lower() for field in known}:
            print(f"squeue: error: Invalid job format specification: {name}", file=sys.stderr)
            return 1
    for row in rows:
        print("".join(f"{row.get(name, '')}{suffix}" for name, suffix in fields))
    return 0


def do_squeue(options: dict[str, str], rest: list[str]) -> int:
    # With a file `forgets` what has ended is the accounting's to tell.
    jobs = [] if (HOME / "forgets").exists() else list_jobs(options)
    return print_format(options["Format"], QUEUE, [values for _, values in jobs])


def do_sacct(options: dict[str, str], rest: list[str]) -> int:
    names = options["format"].split(",")
    for name in names:
        if name not in ACCOUNTS:
            print(f'sacct: fatal: Invalid field requested: "{name}"', file=sys.stderr)
            return 1
    for _, values in list_jobs(options):
        print("".join(f"{values.get(name, '')}{options['delimiter']}" for name in names))
    return 0


def do_sinfo(options: dict[str, str], rest: list[str]) -> int:
    row = {"NodeList": "n1", "Partition": "old*", "StateLong": "idle", "CPUsState": "0/4/0/4", "Memory": "4000"}
    more = {"AllocMem": "0", "Gres": "(null)", "GresUsed": "gpu:0", "Time": "infinite", "Reason": "none"}
    return print_format(options["Format"], NODES, [row | more])


def do_scancel(options: dict[str, str], rest: list[str]) -> int:
    return 0


def do_srun(options: dict[str, str], rest: list[str]) -> int:
    return subprocess.run(rest, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(os.path.basename(sys.argv[0]), sys.argv[1:]))
