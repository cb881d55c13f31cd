"""Slurm's commands on the fake: words in, exit code and texts out. What nobody sends raises, so that nobody guesses."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.fakes.slurm_controller import FakeSlurm
from tests.fakes.slurm_formats import (
    UID,
    Clock,
    account_row,
    describe_job,
    describe_site,
    join_lines,
    node_row,
    queue_row,
    write_columns,
    write_letters,
)
from tests.fakes.slurm_jobs import NativeJob, Request, read_indices

from overspan.adapters.slurm.commands.options import inherited, read_command
from overspan.bridge.model.durations import parse_time_limit
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.model.slurm.hostlists import expand

SIGNALS = {"TERM": 15, "KILL": 9, "USR1": 10, "USR2": 12, "INT": 2, "HUP": 1, "CONT": 18, "STOP": 19}
UNKNOWN = "Invalid job id specified"
AWAY = "Unable to contact slurm controller (connect failure)"
RPC = 0.02
"""Seconds that scancel takes for each job; others start meanwhile."""
WAIT = 60.0
"""For how long scancel tries to signal what has not started."""


class Answer(NamedTuple):
    """How a command ended; `seconds` it took besides."""

    rc: int = 0
    out: str = ""
    err: str = ""
    seconds: float = 0.0


class Asked(NamedTuple):
    """One command: its words without the name, what is given to its standard input, its variables and folder."""

    words: Sequence[str]
    stdin: str = ""
    environment: Mapping[str, str] = {}
    folder: str = ""

    def option(self, name: str) -> str | None:
        """The value of a long option; empty where it has none."""
        for word in self.words:
            head, _, value = word.partition("=")
            if head == f"--{name}":
                return value
        return None

    @property
    def names(self) -> list[str]:
        """The words that are no options."""
        return [word for word in self.words if not word.startswith("-")]

    @property
    def clock(self) -> Clock:
        """How times are written."""
        return Clock(self.environment.get("SLURM_TIME_FORMAT", ""))


def find(slurm: FakeSlurm, name: str, split: bool = False) -> list[NativeJob]:
    """The jobs that an id names: N (all of an array or a hetjob too), N_i, N_[a-b], N+k.

    With `split`, waiting elements that are named become jobs of their own.
    """
    name, _, offset = name.partition("+")
    head, _, elements = name.partition("_")
    if not head.isdigit() or not int(head):
        return []
    number = int(head)
    jobs = [job for job in slurm.jobs.values() if number in (job.id, job.array_job, job.het_job)]
    if offset:
        return [job for job in jobs if job.het_offset == int(offset)]
    if not elements:
        own = slurm.jobs.get(number)
        alone = own is not None and own.array_job != number and own.het_job != number
        return [own] if own is not None and alone else jobs
    indices, _ = read_indices(elements.strip("[]"))
    found = [job for job in jobs if job.index in indices]
    for job in [job for job in jobs if set(job.indices) & set(indices)]:
        parts = [one for one in job.indices if one in indices]
        found += [slurm.split(job, one) for one in parts] if split else [job]
    return found


# --- asking ----------------------------------------------------------------------------------------------------------


def squeue(slurm: FakeSlurm, asked: Asked) -> Answer:
    """List jobs."""
    ids = asked.option("jobs")
    jobs = list(slurm.jobs.values())
    if ids is not None:
        names = ids.split(",")
        jobs = list({id(job): job for name in names for job in find(slurm, name)}.values())
        if not jobs and len(names) == 1:
            return Answer(1, "", f"slurm_load_jobs error: {UNKNOWN}\n")
    states = (asked.option("states") or "").upper()
    if not states:
        jobs = [job for job in jobs if not job.over]
    elif states != "ALL":
        jobs = [job for job in jobs if (job.flag or job.state) in states.split(",")]
    if asked.option("array") is not None:
        jobs = [element for job in jobs for element in _spread(job)]
        if ids is not None:
            jobs = [job for job in jobs if job.index is None or any(_is_about(job.name, job.id, one) for one in names)]
    form, letters = asked.option("Format"), asked.option("format")
    rows = [queue_row(slurm, job, asked.clock) for job in sorted(jobs, key=lambda job: (job.id, job.index or 0))]
    if form is not None:
        return Answer(0, "".join(write_columns(form, row) for row in rows))
    return Answer(0, "".join(write_letters(letters or "%i %T %r", row) for row in rows))


def _spread(job: NativeJob) -> list[NativeJob]:
    """The waiting elements of an array one by one, under its own number."""
    return [replace(job, index=index, indices=()) for index in job.indices] or [job]


def sacct(slurm: FakeSlurm, asked: Asked) -> Answer:
    """List runs."""
    if not slurm.site.accounting:
        return Answer(1, "", "Slurm accounting storage is disabled\n")
    rows = [row for _, row in sorted(slurm.accounts.items())]
    ids = asked.option("jobs")
    if ids is not None:
        names = ids.split(",")
        rows = [row for row in rows if any(_is_about(row.name, row.job, name) for name in names)]
    since = (asked.option("starttime") or "").removeprefix("uts")
    if since.isdigit():
        rows = [row for row in rows if row.submit >= float(since) or not row.end]
    if asked.option("duplicates") is None:
        rows = list({row.job: row for row in rows}.values())
    fields, end = (asked.option("format") or "JobID,State").split(","), asked.option("delimiter") or "|"
    last = end if asked.option("parsable") is not None else ""
    shown = [account_row(row, asked.clock, slurm.now) for row in rows]
    return Answer(0, join_lines([end.join(row(field) for field in fields) + last for row in shown]))


def _is_about(shown: str, raw: int, name: str) -> bool:
    head, _, index = name.partition("_")
    own, _, indices = shown.partition("_")
    if not index:
        return head in (str(raw), own.partition("+")[0])
    return head == own and bool(indices) and int(index) in read_indices(indices.replace("[", "").replace("]", ""))[0]


def sinfo(slurm: FakeSlurm, asked: Asked) -> Answer:
    """List nodes, one record for each partition."""
    pairs = [
        (slurm.nodes[name], part) for name in slurm.nodes for part in slurm.partitions.values() if name in part.nodes
    ]
    form = asked.option("Format") or ""
    return Answer(0, "".join(write_columns(form, node_row(node, part)) for node, part in pairs))


# --- srun ------------------------------------------------------------------------------------------------------------


def refuse_step(slurm: FakeSlurm, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Why srun with these words starts nothing, empty where it does; and the program that it is to start."""
    options = list(itertools.takewhile(lambda word: word.startswith("-"), words))
    number, program = Asked(options).option("jobid"), words[len(options) :]
    said = ""
    if number is None and not any(node.state == "idle" for node in slurm.nodes.values()):
        said = "Unable to allocate resources"
    elif number is not None and not (jobs := find(slurm, number)):
        said = f"Unable to confirm allocation for job {number}: {UNKNOWN}"
    elif number is not None and jobs[0].state != "RUNNING":
        assert not jobs[0].waits, "what srun says of a job that waits was not measured"
        said = f"Unable to create step for job {number}: Job/step already completing or completed"
    return said and f"srun: error: {said}\n", program


# --- sbatch ----------------------------------------------------------------------------------------------------------


def sbatch(slurm: FakeSlurm, asked: Asked) -> Answer:
    """Submit a job."""
    script = asked.stdin
    words = ["sbatch", *asked.words]
    if any(word.startswith("--wrap") for word in words):
        script = f"#!/bin/sh\n{asked.option('wrap')}\n"
    given = _lay(_read_directives(script), read_command(words))
    array = given[0].get("array", "")
    indices, throttle = read_indices(array) if array else ((), 0)
    requests = [_make_request(slurm, options, asked, script) for options in given]
    wrong = _refuse(slurm, requests, indices)
    trial = "--test-only" in words
    if wrong:
        lead = "allocation failure: " if trial else "sbatch: error: Batch job submission failed: "
        before = f"sbatch: error: {wrong[1]}\n" if wrong[1] else ""
        return Answer(1, "", f"{before}{lead}{wrong[0]}\n")
    if trial:
        return Answer(0, "", "sbatch: Job 1 to start at 2026-01-01T00:00:00 using 1 processors on nodes node1\n")
    return Answer(0, f"{slurm.submit(requests, indices, throttle)}\n")


def _read_directives(script: str) -> list[dict[str, str]]:
    components: list[list[str]] = [["sbatch"]]
    for line in script.splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            parts = shlex.split(line.removeprefix("#SBATCH"))
            if parts in (["hetjob"], ["packjob"]):
                components.append(["sbatch"])
            else:
                components[-1] += parts
    return [read_command(words)[0] for words in components]


def _lay(directives: list[dict[str, str]], words: list[dict[str, str]]) -> list[dict[str, str]]:
    """The options of each component: what a later one has of an earlier, its directives, the command line."""
    found: list[dict[str, str]] = []
    for place in range(max(len(directives), len(words))):
        passed = {name: found[-1][name] for name in inherited(found[-1])} if found else {}
        own = directives[place] if place < len(directives) else {}
        found.append({**passed, **own, **(words[place] if place < len(words) else {})})
    return found


def _make_request(slurm: FakeSlurm, options: Mapping[str, str], asked: Asked, script: str) -> Request:
    nodes = int(options.get("nodes", "1").partition("-")[0])
    tasks = int(options.get("ntasks-per-node") or -(-int(options.get("ntasks") or nodes) // nodes))
    cpus = tasks * int(options.get("cpus-per-task") or 1)
    per_cpu = options.get("mem-per-cpu")
    gpus = re.search(r"gpu(?::[a-z]\w*)?(?::(\d+))?", options.get("gres", ""))
    limit = parse_time_limit(options["time"]) if "time" in options else None
    workdir = options.get("chdir") or asked.folder
    return Request(
        name=options.get("job-name") or "sbatch",
        user=slurm.site.user,
        partition=options.get("partition") or asked.environment.get("SBATCH_PARTITION") or "main",
        comment=options.get("comment", ""),
        script=script,
        submit_line=shlex.join(["sbatch", *asked.words]),
        workdir=workdir,
        output=options.get("output", ""),
        error=options.get("error", ""),
        nodes=nodes,
        cpus=cpus,
        memory=parse_memory(per_cpu) * cpus if per_cpu else parse_memory(options.get("mem") or "0"),
        gpus=int(gpus[1] or 1) if gpus else 0,
        nodelist=tuple(expand(options["nodelist"])) if options.get("nodelist") else (),
        limit=limit,
        requeue="no-requeue" not in options,
        hold="hold" in options,
        begin=read_instant(options.get("begin", ""), slurm.now),
        dependency=options.get("dependency", ""),
        kill_on_invalid_dep=options.get("kill-on-invalid-dep") == "yes",
        environment=asked.environment,
    )


def _refuse(slurm: FakeSlurm, requests: Sequence[Request], indices: Sequence[int]) -> tuple[str, str] | None:
    """Why Slurm does not take a job, and what sbatch says before that."""
    for request in requests:
        if request.partition not in slurm.partitions:
            return "Invalid partition name specified", f"invalid partition specified: {request.partition}"
        if not slurm.can_hold(request):
            big = all(request.memory > node.memory for node in slurm.nodes.values())
            before = "Memory specification can not be satisfied" if big else ""
            return "Requested node configuration is not available", before
    if indices and max(indices) >= slurm.site.max_array:
        return "Invalid job array specification", ""
    return None


def read_instant(text: str, now: float) -> float:
    """A point in time: now, now+90, now+1hour, uts1800000000; 0 for now."""
    if text.startswith("uts"):
        return float(text[3:])
    match = re.fullmatch(r"now(?:\+(\d+)(second|minute|hour|day)?s?)?", text)
    if match is None or not match[1]:
        return 0.0
    return now + int(match[1]) * {"minute": 60, "hour": 3600, "day": 86400}.get(match[2] or "", 1)


# --- orders ----------------------------------------------------------------------------------------------------------


def scancel(slurm: FakeSlurm, asked: Asked) -> Answer:
    """End or signal jobs."""
    signal = asked.option("signal")
    number = None if signal is None else SIGNALS.get(signal.removeprefix("SIG")) or int(signal)
    states = (asked.option("state") or "").upper()
    names, lines, seconds = asked.names, [], 0.0
    if asked.option("user") is not None:
        names += [str(number) for number in dict.fromkeys(job.array_job or job.id for job in slurm.jobs.values())]
    began = slurm.now
    for name in names:
        slurm.catch_up(slurm.now + RPC)
        jobs = [job for job in find(slurm, name) if not states or (job.flag or job.state) == states]
        # Asked for a waiting element by its state, it ends the whole waiting array (measured).
        if "_" in name and not states and number is None:
            jobs = [job for job in jobs if not _withdraw(slurm, job, name)]
        jobs = [job for job in jobs if not job.over]
        if number is not None and number != SIGNALS["KILL"]:
            if not jobs and not states:
                lines.append(f"scancel: error: Kill job error on job id {name}: {UNKNOWN}")
            seconds = WAIT if any(job.waits for job in jobs) else seconds
        for job in jobs:
            if number is not None and number != SIGNALS["KILL"]:
                slurm.signal(job, number)
            else:
                slurm.cancel(job, UID)
    return Answer(1 if lines else 0, "", join_lines(lines), slurm.now - began + seconds)


def _withdraw(slurm: FakeSlurm, job: NativeJob, name: str) -> bool:
    """Take the named elements out of an array, unless they are all that waits."""
    indices, _ = read_indices(name.partition("_")[2].strip("[]"))
    part = bool(set(job.indices) - set(indices))
    if part:
        slurm.withdraw(job, indices)
    return part


def scontrol(slurm: FakeSlurm, asked: Asked) -> Answer:
    """Show, hold, release, requeue and change."""
    verb, *rest = asked.names
    if verb == "show":
        return _show(slurm, asked, rest)
    if verb == "update":
        return _update(slurm, rest)
    if verb in ("suspend", "resume"):
        return Answer(1, "", f"Access/permission denied for job {rest[0]}\n")
    by = "admin" if asked.environment.get("USER") == "root" else "user"
    unless_over = rest[0].lower() == "incomplete"
    names = [name for text in rest[unless_over:] for name in _split_names(text)]
    if unless_over:
        # Of a job that is over it says nothing.
        names = [name for name in names if not (jobs := find(slurm, name)) or not all(job.over for job in jobs)]
    lines = [line for name in names if (line := _obey(slurm, verb, name, by))]
    return Answer(1 if lines else 0, "", join_lines(lines))


def _split_names(text: str) -> list[str]:
    return re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text)


def _obey(slurm: FakeSlurm, verb: str, name: str, by: str) -> str:
    jobs = find(slurm, name, split=True)
    if not jobs:
        return f"{UNKNOWN} for job {name}"
    jobs = [job for job in jobs if not job.over] or jobs[:1]
    words = ""
    for job in jobs:
        if verb in ("requeue", "requeuehold"):
            words = slurm.requeue(job, verb == "requeuehold") or words
        elif job.over:
            words = "Job has already finished"
        elif verb in ("hold", "uhold") and job.waits:
            slurm.hold(job, by)
        elif verb == "release" and (job.waits or job.again):
            slurm.release(job)
    return f"{words} for job {name}" if words else ""


def _show(slurm: FakeSlurm, asked: Asked, rest: Sequence[str]) -> Answer:
    if rest[0] == "config":
        return Answer(0, describe_site(slurm))
    if rest[0] == "node":
        wanted = expand(rest[1]) if rest[1:] else list(slurm.nodes)
        return Answer(
            0, join_lines([f"NodeName={name} NodeAddr=10.0.0.{place + 1} " for place, name in enumerate(wanted)])
        )
    jobs = find(slurm, rest[1])
    if not jobs:
        return Answer(1, "", f"slurm_load_jobs error: {UNKNOWN}\n")
    return Answer(0, join_lines([describe_job(slurm, job, asked.clock) for job in jobs]))


def _update(slurm: FakeSlurm, rest: Sequence[str]) -> Answer:
    values = {name.lower(): value for name, _, value in (word.partition("=") for word in rest)}
    if "nodename" in values:
        change: Mapping[str, Callable[[str], None]] = {
            "DOWN": slurm.set_down,
            "DRAIN": slurm.drain,
            "RESUME": slurm.resume,
            "POWER_DOWN": slurm.power_off,
        }
        change[values["state"]](values["nodename"])
        return Answer()
    lines = []
    for name in _split_names(values.pop("jobid")):
        jobs = find(slurm, name, split="arraytaskthrottle" not in values)
        said = [line for job in jobs if (line := _change(slurm, job, values))] if jobs else [UNKNOWN]
        lines += [f"{line} for job {name}" for line in said]
    return Answer(1 if lines else 0, "", join_lines(lines))


def _change(slurm: FakeSlurm, job: NativeJob, values: Mapping[str, str]) -> str:
    if job.over:
        return "Job has already finished"
    if ("starttime" in values or "dependency" in values) and not job.waits:
        return "Job is no longer pending execution"
    if "starttime" in values:
        job.begin = read_instant(values["starttime"], slurm.now)
        job.reason = "BeginTime" if job.begin > slurm.now else "None"
    if "timelimit" in values:
        slurm.set_limit(job, parse_time_limit(values["timelimit"]) or 365 * 86400)
    if "priority" in values:
        job.priority = int(values["priority"])
    if "dependency" in values:
        job.dependency = values["dependency"]
    if "arraytaskthrottle" in values:
        job.throttle = int(values["arraytaskthrottle"])
    slurm.look_soon()
    return ""


COMMANDS: Mapping[str, Callable[[FakeSlurm, Asked], Answer]] = {
    "sbatch": sbatch,
    "squeue": squeue,
    "sacct": sacct,
    "sinfo": sinfo,
    "scancel": scancel,
    "scontrol": scontrol,
}
