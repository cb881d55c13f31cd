"""Imports jobs that users submitted to Slurm directly: Overspan watches and controls them, but never submits them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from overspan.adapters.abilities import Foreign
from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.adapters.slurm.access.sent_scripts import read_script
from overspan.adapters.slurm.commands.listings import read_number
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.files.logs import read_paths
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.rendering.script import list_tokens, split_comment
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import Form, JobSpec, Origin, RetryPolicy, Streams, TaskSpec

UNKNOWN_SCRIPT = "#!/bin/sh\n# Slurm did not provide this job's script.\n"
_ID = re.compile(r"(\d{1,10})(?:_(\d{1,10}))?")

Record = QueueRecord | AccountingRecord
Answer = Accepted | Refusal
Submit = Callable[[Sequence[Launch]], Awaitable[dict[str, Answer]]]


class NativeJobImporter:
    """Finds foreign jobs of one cluster, and accepts their launches."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def find_job(self, native: str) -> Foreign:
        """The facts of a native job, which may have ended.

        Raises InvalidRequest for an array, a hetjob or a wrong id, NotFound, Denied for another user's job, Conflict
        for a job that Overspan submitted.
        """
        match = _ID.fullmatch(native)
        if match is None:
            raise InvalidRequest(f"{native!r} is not a Slurm job id", remedy="write CLUSTER:123 or CLUSTER:123_4")
        number, index = int(match[1]), None if match[2] is None else int(match[2])
        queue = await self._queries.queue([number])
        record: Record | None = choose_record(number, index, queue)
        if record is None:
            record = await self._find_ended(number if index is None else 0)
        if record is None:
            raise NotFound(f"Slurm knows no job {native}", remedy="`squeue` and `sacct` there list them")
        site = await self._queries.site()
        if record.user != site.user:
            raise Denied(f"job {native} is {record.user}'s", remedy=f"only jobs of {site.user} can be watched")
        if is_own(record):
            raise Conflict(f"job {native} was submitted by Overspan", remedy="`span squeue` shows it where it was")
        fields = await self._queries.describe(str(record.raw))
        return describe_foreign(record, fields, (await read_script(self._queries, record.raw)).text if fields else "")

    async def _find_ended(self, number: int) -> AccountingRecord | None:
        site = await self._queries.site()
        if not number or not site.accounting:
            return None
        return next(reversed((await self._queries.runs([str(number)]))[str(number)]), None)

    async def submit(self, launches: Sequence[Launch], submit: Submit) -> dict[str, Answer]:
        """The answers by token: imported jobs are accepted as they are, all others are submitted."""
        others = [launch for launch in launches if not launch.job.spec.adopted]
        answers = await submit(others) if others else {}
        for launch in launches:
            if launch.job.spec.adopted:
                answers[launch.token] = await self._take(launch)
        return answers

    async def _take(self, launch: Launch) -> Answer:
        native = int(launch.job.spec.adopted)
        record = (await self._queries.queue([native])).get(native)
        run = record.restarts if record is not None else len(await self._count_runs(native)) - 1
        if run < 0:
            return Refusal(launch.token, f"Slurm no longer knows the job {native}; a job of others is not submitted")
        fields = await self._queries.describe(str(native))
        streams = launch.job.spec.tasks[0].streams
        paths = read_paths(fields) if fields else (streams.output, streams.error)
        return Accepted(launch.token, str(make_handle(launch.job, native, run, paths)), str(native))

    async def _count_runs(self, native: int) -> Sequence[AccountingRecord]:
        site = await self._queries.site()
        runs = (await self._queries.runs([str(native)]))[str(native)] if site.accounting else []
        return [run for run in runs if not is_own(run)]


def is_own(record: Record) -> bool:
    """Whether Overspan submitted the job. Its token is in the comment, which some sites' accounting does not keep."""
    line = record.submit_line if isinstance(record, AccountingRecord) else ""
    return bool(list_tokens(f"{record.comment} {line}"))


def choose_record(number: int, index: int | None, queue: Mapping[int, QueueRecord]) -> QueueRecord | None:
    """The record of a job or an element; None if there is none. InvalidRequest for arrays and hetjobs."""
    if index is not None:
        wanted = (record for record in queue.values() if (record.array_job, record.array_index) == (number, index))
        found = next(wanted, None)
        waits = any(record.waiting is not None for record in queue.values())
        if found is None and waits:
            raise InvalidRequest(
                f"{number}_{index} is not a job of its own while it waits", remedy="import it when it has started"
            )
        return found
    if any(record.array_job == number for record in queue.values()):
        raise InvalidRequest(f"{number} is an array", remedy=f"import its elements one by one, such as {number}_1")
    record = queue.get(number)
    if record is not None and record.het_job is not None:
        raise InvalidRequest(f"{number} is a hetjob", remedy="only jobs of one component can be imported")
    return record


def describe_foreign(record: Record, fields: Mapping[str, str], script: str = "") -> Foreign:
    """A job's facts from its record and from `scontrol show job`, which is empty for a job that ended long ago."""
    nodes = max(1, record.num_nodes or 1)
    output, error = read_paths(fields)
    cpus = read_number(fields.get("NumCPUs", "")) or 0
    task = TaskSpec(
        name="batch",
        form=Form.BATCH,
        run=script or UNKNOWN_SCRIPT,
        num_nodes=nodes,
        resources=Resources(cpus=cpus / nodes if cpus else None),
        workdir=fields.get("WorkDir", ""),
        time=record.limit.seconds,
        # Slurm alone restarts a foreign job: Overspan never submits it again.
        retry=RetryPolicy(max_recoveries=0),
        streams=Streams(output, "" if error == output else error),
    )
    spec = JobSpec(
        name=record.name,
        tasks=(task,),
        requeue={"0": False, "1": True}.get(fields.get("Requeue", "")),
        partition=record.partition,
        account=_known(fields.get("Account", "")),
        qos=_known(fields.get("QOS", "")),
        comment=split_comment(record.comment),
        origin=Origin(user=record.user, directory=fields.get("WorkDir", ""), command=(fields.get("Command", ""),)),
        adopted=str(record.raw),
    )
    return Foreign(spec, record.submit)


def _known(word: str) -> str:
    return "" if word in ("(null)", "N/A") else word
