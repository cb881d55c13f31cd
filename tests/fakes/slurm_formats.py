"""How squeue, sacct, sinfo and scontrol write what the fake Slurm knows (22.05): fields by their names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from tests.fakes.slurm_controller import FakeSlurm
from tests.fakes.slurm_jobs import AccountingRow, NativeJob
from tests.fakes.slurm_nodes import FakeNode, Partition

from overspan.bridge.model.durations import format_elapsed, format_limit
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT, FilenameFields, expand_filename
from overspan.bridge.model.slurm.hostlists import compress

LETTERS = {
    "i": "JobArrayID",
    "A": "JobID",
    "T": "State",
    "r": "Reason",
    "N": "NodeList",
    "Z": "WorkDir",
    "k": "Comment",
}
LETTERS |= {"j": "Name", "u": "UserName", "P": "Partition"}
UID = 1000


def write_columns(specification: str, row: Callable[[str], str]) -> str:
    """A record by a --Format value: each field padded to its width, or ended by its suffix."""
    written = ""
    for name, suffix in re.findall(r"(\w+)(?::([^,]*))?,?", specification):
        value = row(name)
        if suffix.isdigit() or not suffix:
            width = int(suffix or 20)
            written += value[:width].ljust(width)
        else:
            written += value + suffix
    return written + "\n"


def write_letters(specification: str, row: Callable[[str], str]) -> str:
    """A record by a --format value: %i|%T."""
    return re.sub(r"%[.\d]*([A-Za-z])", lambda match: row(LETTERS[match[1]]), specification) + "\n"


class Clock:
    """How times are written: as SLURM_TIME_FORMAT says."""

    def __init__(self, form: str = "") -> None:
        self._form = form or "%Y-%m-%dT%H:%M:%S"

    def show(self, at: float, missing: str = "N/A") -> str:
        """A point in time."""
        if not at:
            return missing
        return str(int(at)) if self._form == "%s" else time.strftime(self._form, time.localtime(at))


def show_state(job: NativeJob) -> str:
    """The flag, or the base."""
    return job.flag or job.state


def queue_row(slurm: FakeSlurm, job: NativeJob, clock: Clock) -> Callable[[str], str]:
    """The fields of squeue's --Format for a job."""
    request, array = job.request, bool(job.array_job)
    limit = slurm.limit_of(job)
    end = job.end or (job.start and job.start + limit)
    fields: Mapping[str, str] = {
        "jobarrayid": job.name,
        "jobid": str(job.id),
        "arrayjobid": str(job.array_job or job.id),
        "arraytaskid": job.name.partition("_")[2].strip("[]") if array and job.name != str(job.id) else "N/A",
        "hetjobid": str(job.het_job) if job.het_job else "N/A",
        "hetjoboffset": str(job.het_offset) if job.het_job else "N/A",
        "state": show_state(job),
        "reason": job.reason,
        "exit_code": str(job.status),
        "restartcnt": str(job.restarts),
        "username": request.user,
        "partition": request.partition,
        "nodelist": compress(job.nodes) if job.nodes else "",
        "batchhost": job.nodes[0] if job.nodes else "n/a",
        "numnodes": str(len(job.nodes) or request.nodes),
        "submittime": clock.show(job.submit),
        "starttime": clock.show(job.start or (job.begin if job.begin > slurm.now else 0.0)),
        "endtime": clock.show(end),
        "timelimit": format_limit(limit),
        "timeused": format_elapsed((job.end or slurm.now) - job.start if job.start else 0),
        "prioritylong": str(0 if job.held else job.priority),
        "name": request.name,
        "comment": request.comment or "(null)",
        "workdir": request.workdir,
    }
    return lambda name: fields[name.lower()]


def account_row(row: AccountingRow, clock: Clock, now: float) -> Callable[[str], str]:
    """The fields of sacct's --format for a run."""
    request = row.request
    code, signal = (row.status >> 8, row.status & 0x7F)
    state = f"{row.state} by {row.by}" if row.state == "CANCELLED" and row.by is not None else row.state
    fields = {
        "jobid": row.name,
        "jobidraw": str(row.job),
        "partition": request.partition,
        "state": state,
        "reason": row.reason,
        "exitcode": f"{code}:{signal}",
        "derivedexitcode": "0:0",
        "submit": clock.show(row.submit, "Unknown"),
        "start": clock.show(row.start, "Unknown"),
        "end": clock.show(row.end, "Unknown"),
        "elapsedraw": str(int((row.end or now) - row.start) if row.start else 0),
        "timelimitraw": str(row.limit // 60) if row.limit else "Partition_Limit",
        "nnodes": str(len(row.nodes) or request.nodes),
        "nodelist": compress(row.nodes) if row.nodes else "None assigned",
        "user": request.user,
        "jobname": request.name,
        "comment": request.comment,
        "submitline": request.submit_line,
    }
    return lambda name: fields[name.lower()]


def node_row(node: FakeNode, partition: Partition) -> Callable[[str], str]:
    """The fields of sinfo's --Format for a node in a partition."""
    cpus, memory, gpus = node.used
    other = 0 if node.usable else node.cpus - cpus
    fields = {
        "nodelist": node.name,
        "partition": partition.name + "*" * partition.default,
        "statelong": node.state,
        "cpusstate": f"{cpus}/{node.cpus - cpus - other}/{other}/{node.cpus}",
        "memory": str(node.memory),
        "allocmem": str(memory),
        "gres": f"gpu:{node.gpus}" if node.gpus else "(null)",
        "gresused": f"gpu:{gpus}",
        "time": format_limit(partition.limit),
        "reason": node.reason or "none",
    }
    return lambda name: fields[name.lower()]


def output_paths(job: NativeJob) -> tuple[str, str]:
    """Where a job writes its output and its error."""
    request = job.request
    element = job.index if job.array_job else None
    fields = FilenameFields(job.id, request.name, request.user, array_job=job.array_job or job.id, element=element)
    default = BATCH_DEFAULT if element is None else ARRAY_DEFAULT

    def fill(pattern: str) -> str:
        path = expand_filename(pattern, fields)
        return path if path.startswith("/") else f"{request.workdir}/{path}"

    output = fill(request.output or default)
    return output, fill(request.error) if request.error else output


def describe_job(slurm: FakeSlurm, job: NativeJob, clock: Clock) -> str:
    """One line of `scontrol --oneliner show job`."""
    request = job.request
    output, error = output_paths(job)
    array = f"ArrayJobId={job.array_job} ArrayTaskId={job.index} " if job.index is not None else ""
    return (
        f"JobId={job.id} {array}JobName={request.name} UserId={request.user}({UID}) GroupId={request.user}({UID})"
        f" Priority={0 if job.held else job.priority} Nice=0 JobState={show_state(job)}"
        f" Reason={job.reason.replace(' ', '_')} Dependency={job.dependency or '(null)'}"
        f" Requeue={int(request.requeue)} Restarts={job.restarts} BatchFlag=1"
        f" ExitCode={job.status >> 8}:{job.status & 0x7F} TimeLimit={format_limit(slurm.limit_of(job))}"
        f" SubmitTime={clock.show(job.submit)} StartTime={clock.show(job.start, 'Unknown')}"
        f" EndTime={clock.show(job.end, 'Unknown')} Partition={request.partition}"
        f" NodeList={compress(job.nodes) if job.nodes else ''} NumNodes={len(job.nodes) or request.nodes}"
        f" Comment={request.comment} Command=(null) WorkDir={request.workdir}"
        f" StdErr={error} StdIn=/dev/null StdOut={output}"
    )


def describe_site(slurm: FakeSlurm) -> str:
    """The answer to `scontrol show config`, as far as anybody reads it."""
    site = slurm.site
    lines = {
        "AccountingStorageType": f"accounting_storage/{'slurmdbd' if site.accounting else 'none'}",
        "ClusterName": "fake",
        "JobRequeue": "1",
        "KillWait": f"{site.kill_wait:g} sec",
        "MaxArraySize": str(site.max_array),
        "MessageTimeout": f"{site.message_timeout:g} sec",
        "MinJobAge": f"{site.min_job_age:g} sec",
        "PreemptType": "preempt/none",
        "SchedulerParameters": "(null)",
        "SchedulerType": "sched/backfill" if site.backfill else "sched/builtin",
        "SlurmctldParameters": site.parameters,
        "SLURM_VERSION": "22.05.8",
    }
    return "Configuration data\n" + "".join(f"{name:24}= {value}\n" for name, value in lines.items())


def join_lines(lines: Sequence[str]) -> str:
    """Lines, each with its end."""
    return "".join(f"{line}\n" for line in lines)
