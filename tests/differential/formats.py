"""Real outputs of the listing commands for a known set of jobs: what the formats are tested against.

The jobs are those of `JOBS`, named after the state they are in. `record_formats` brings them into it and writes one
file of transcripts for each group of commands.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.differential.transcripts import Transcript, write_transcripts

# A job without --mem would take all memory of its node.
SLEEP = ("--mem=100", "--wrap", "sleep 900")
# Each ends within MinJobAge; the time limit of one minute is the shortest there is.
JOBS: tuple[tuple[str, ...], ...] = (
    ("-J", "timeout", "-t", "1", "-o", "/dev/null", *SLEEP),
    ("-J", "running", "-t", "30", "--comment", "a note", "-o", "run-%j.log", *SLEEP),
    (
        "-J",
        "wide",
        "-N2",
        "--ntasks-per-node=1",
        "--gres=gpu:1",
        "--mem=500",
        "-t",
        "1-0",
        "-e",
        "wide.err",
        "--wrap",
        "sleep 900",
    ),
    ("-J", "held", "--hold", "--nice=5", "-t", "90", "-c", "2", *SLEEP),
    ("-J", "dependent", "-d", "afterok:{running}:{wide}", "-t", "2:30:00", "-p", "short,main", *SLEEP),
    ("-J", "never", "-d", "afternotok:{completed}", "-n", "3", *SLEEP),
    ("-J", "later", "--begin", "2031-05-06T07:08:09", "--mem-per-cpu=200", "-n", "2", "--wrap", "sleep 900"),
    ("-J", "array", "--array=1-6%2", "-t", "20", *SLEEP),
    ("-J", "sparse", "--array=0-20:5,7", "--hold", *SLEEP),
    ("-J", "pair", "-t", "15", ":", "-n", "2", "-t", "25", *SLEEP),
    ("-J", "a-rather-long-name-of-a-job", "-N3", "--exclusive", "-t", "5-0:0:0", *SLEEP),
    ("-J", "full", "-N3", "--exclusive", "-t", "10", *SLEEP),
    ("-J", "completed", "--wrap", "true"),
    ("-J", "failed", "--wrap", "exit 3"),
    ("-J", "killed", "--wrap", "kill -9 $$"),
    ("-J", "cancelled", *SLEEP),
    ("-J", "withdrawn", "--hold", *SLEEP),
    ("-J", "nolog", "-o", "missing/folder/%j.out", "--wrap", "true"),
    ("-J", "steps", "-n2", "--wrap", "srun true; srun -n1 false; exit 0"),
)
# `never` depends on a job that must have ended; the wide ones must not stand in the way.
ORDER = ("timeout", "completed", "failed", "killed", "cancelled", "withdrawn", "nolog", "steps", "running", "wide")
LETTERS = "aABcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRSstTuUvVwWxXyYzZ"
LISTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
Argv = tuple[str, ...]


def all_commands() -> dict[str, list[Argv]]:
    """The commands by group; `{NAME}` in a word is the id of that job."""
    groups: dict[str, list[Argv]] = {
        group: [tuple(shlex.split(line)) for line in lines] for group, lines in LISTS["commands"].items()
    }
    groups["scontrol"] += [("scontrol", "show", "job", f"{{{job[1]}}}") for job in JOBS]
    groups["squeue-letters"] = [("squeue", "-S", "i", "-t", "all", "-o", f"%i|%{one}|%.14{one}|") for one in LETTERS]
    groups["squeue-step-letters"] = [("squeue", "-s", "-o", f"%i|%{letter}|") for letter in "AbijMNPSu"]
    wanted = (f"JobArrayID:12,{name},{name}:.9,{name}:#" for name in LISTS["squeue-names"])
    groups["squeue-names"] = [("squeue", "-S", "i", "-t", "all", "-O", names) for names in wanted]
    groups["sacct-fields"] = [("sacct", "-P", "-o", f"JobID,{name},{name}%6") for name in LISTS["sacct-fields"]]
    groups["sacct-fields"] += [
        ("sacct", "-j", "{wide},{steps}", "-o", f"JobID,{name}") for name in LISTS["sacct-fields"]
    ]
    groups["sinfo"] += [("sinfo", "-o", f"%{letter}|%.12{letter}|") for letter in LETTERS]
    groups["sinfo"] += [("sinfo", "-N", "-o", f"%N|%{letter}|%.12{letter}|") for letter in LETTERS]
    groups["sinfo"] += [("sinfo", "-O", f"{name},{name}:.9,{name}:#") for name in LISTS["sinfo-names"]]
    return groups


Run = Callable[[tuple[str, ...]], Any]


def record_formats(run: Run, folder: Path) -> dict[str, str]:
    """Bring the jobs of `JOBS` into their states and write the transcripts; gives the jobs' ids by their names.

    `run(argv)` runs a command as the user in a folder of the user's and gives an object with rc, stdout and stderr.
    """
    ids = start_jobs(run)
    folder.mkdir(parents=True, exist_ok=True)
    listing = [f"{name} {number}" for name, number in ids.items()]
    (folder / "jobs.txt").write_text("\n".join(listing) + "\n")
    for group, commands in all_commands().items():
        write_transcripts(folder / f"{group}.txt", (_play(run, argv, ids) for argv in commands))
    return ids


def start_jobs(run: Run) -> dict[str, str]:
    """Submit the jobs and wait until each is in the state that its name says; raises AssertionError after a while."""
    by_name = {job[1]: job for job in JOBS}
    ids: dict[str, str] = {}
    for name in [*ORDER, *(name for name in by_name if name not in ORDER)]:
        if name == "dependent":
            _until(run, "R", [ids["running"], ids["wide"]])
        done = run(("sbatch", "--parsable", *_filled(by_name[name], ids)))
        assert done.rc == 0, done.stderr
        ids[name] = done.stdout.strip()
        if name == "steps":
            _until(run, "R", [ids["cancelled"]])
            run(("scancel", ids["cancelled"], ids["withdrawn"]))
            for state, ended in (
                ("CD", ["completed", "steps"]),
                ("F", ["failed", "killed", "nolog"]),
                ("CA", ["cancelled"]),
            ):
                _until(run, state, [ids[job] for job in ended])
    _until(run, "R", [ids["array"], ids["pair"]])
    _until(run, "TO", [ids["timeout"]], seconds=400)
    return ids


def _until(run: Run, state: str, jobs: list[str], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    for job in jobs:
        while True:
            shown = run(("squeue", "-h", "-t", "all", "-o", "%t", "-j", job)).stdout.split()
            if state in shown:
                break
            assert time.monotonic() < deadline, f"job {job} is {shown}, not {state}"
            time.sleep(0.2)


def _filled(argv: tuple[str, ...], ids: Mapping[str, str]) -> tuple[str, ...]:
    filled = []
    for word in argv:
        for name, number in ids.items():
            word = word.replace(f"{{{name}}}", number)
        filled.append(word)
    return tuple(filled)


def _play(run: Run, argv: tuple[str, ...], ids: Mapping[str, str]) -> Transcript:
    words = _filled(argv, ids)
    done = run(words)
    return Transcript(words, done.rc, done.stdout, done.stderr)
