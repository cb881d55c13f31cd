"""Queries to Slurm, by its commands over a transport: answers become records, failures become errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from overspan.adapters.contract import Node
from overspan.adapters.slurm.commands import nodes, sacct, squeue
from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.commands.listings import ask, read_pairs
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.rendering.script import list_tokens
from overspan.adapters.slurm.submission.arrays import DEFAULT_SIZE, Key, Lookup, find_keys, has_index
from overspan.adapters.slurm.transports.transport import Call, Transport
from overspan.bridge.model.errors import OverspanError, Unreachable

_NO_ACCOUNTING = ("accounting_storage/none", "(null)", "")
BATCH_STEP = "batch"
SACCT_IDS = 200
"""Ids of one question to the accounting."""


@dataclass(frozen=True)
class Site:
    """A cluster's own facts: Slurm's version and settings (scontrol show config), the user and their home."""

    version: tuple[int, ...]
    config: Mapping[str, str]
    user: str
    home: str

    @property
    def accounting(self) -> bool:
        """Whether there is accounting that sacct can read."""
        return self.config.get("AccountingStorageType", "") not in _NO_ACCOUNTING

    @property
    def hetjobs(self) -> bool:
        """Whether hetjobs can start: only the backfill scheduler starts them (slurm.conf(5), SchedulerType)."""
        return self.config.get("SchedulerType", "sched/backfill") in ("sched/backfill", "")

    @property
    def array_size(self) -> int:
        """The bound that array indices are below (slurm.conf, MaxArraySize); 0 or 1 if arrays are disabled."""
        found = read_seconds(self.config.get("MaxArraySize", ""))
        return DEFAULT_SIZE if found is None else found

    @property
    def message_timeout(self) -> float:
        """Seconds after which a command gives up waiting for the controller (slurm.conf, MessageTimeout)."""
        return float(read_seconds(self.config.get("MessageTimeout", "")) or 10)


class Queries:
    """Asks Slurm by its commands, with one command for all jobs. `timeout` is in seconds."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self.transport = transport
        self.timeout = timeout
        self.known_nodes: tuple[Node, ...] = ()
        """The nodes in the last answer; empty before the first."""
        self._site: Site | None = None
        self._queue = squeue.QueueListing(())
        """Cache of the last listing: most lines of the next one are equal, and are not parsed again."""
        self._addresses: dict[str, str] = {}
        self._asking: asyncio.Task[Site] | None = None

    @property
    def known_site(self) -> Site | None:
        """The cluster's own facts, if they were queried before."""
        return self._site

    async def site(self) -> Site:
        """The cluster's own facts, cached; single-flight. Raises Unreachable."""
        if self._site is None:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask_site())
                # Retrieves the exception: asyncio would log it if no caller is left to do so.
                self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._site = await asyncio.shield(self._asking)
        return self._site

    async def _ask_site(self) -> Site:
        calls = [
            Call(ask("scontrol", "show", "config")),
            Call(["id", "-un"]),
            Call(["/bin/sh", "-c", "cd && pwd"]),
        ]
        config, user, home = await self.transport.run_all(calls, self.timeout)
        if config is None or user is None or home is None:
            raise Unreachable("the cluster did not answer in time")
        if config.rc != 0:
            raise read_failure(config.words or config.text, config.rc).error()
        for done, what in ((user, "who the user is"), (home, "where the user's home is: it may not be there")):
            if done.rc != 0 or not done.text.strip():
                # With an empty home, run directories would be made at the root of the file system.
                raise Unreachable(
                    f"the login node does not say {what} ({done.words.strip() or f'exit code {done.rc}'})"
                )
        values = read_config(config.text)
        version = read_version(values.get("SLURM_VERSION", ""))
        return Site(version, values, user.text.strip(), home.text.strip())

    async def queue(self, ids: Sequence[int]) -> dict[int, QueueRecord]:
        """The records of those jobs in squeue, by native id."""
        site = await self.site()
        records = await self._ask_queue(squeue.ask_queue(ids, "" if len(ids) <= squeue.MAX_IDS else site.user))
        return {record.raw: record for record in records}

    async def look(self, ids: Sequence[int]) -> Lookup:
        """The records of those jobs in squeue, with a record for each element of arrays among them."""
        site = await self.site()
        user = "" if len(ids) <= squeue.MAX_IDS else site.user
        return Lookup(await self._ask_queue(squeue.ask_queue(ids, user, split=True)))

    async def find_in_queue(self, keys: Iterable[Key]) -> dict[Key, list[QueueRecord]]:
        """The records of the user's jobs whose comments name one of the launches, by their keys."""
        return find_keys(await self.own_queue(), keys)

    async def own_queue(self) -> tuple[QueueRecord, ...]:
        """All of the user's jobs in squeue."""
        return await self._ask_queue(squeue.ask_queue((), (await self.site()).user, split=True))

    async def _ask_queue(self, words: Sequence[str]) -> tuple[QueueRecord, ...]:
        done = await self.transport.run(words, timeout=self.timeout)
        if done.rc != 0:
            failure = read_failure(done.words, done.rc)
            if failure.kind is not FailureKind.UNKNOWN_JOB:
                raise _unanswered(failure.error())
        answer = squeue.read_queue(done.text, self._queue.by_fields)
        if answer.torn:
            raise Unreachable("the answer of squeue is cut off")
        if squeue.SPLIT in words:
            self._queue = answer
        return answer.records

    async def runs(self, names: Sequence[str]) -> dict[str, list[AccountingRecord]]:
        """The runs of those jobs (N, or N_i for an element), oldest first; empty for jobs that the accounting lacks.

        Raises OverspanError when the accounting does not answer.
        """
        site = await self.site()
        found: dict[str, list[AccountingRecord]] = {name: [] for name in names}
        for start in range(0, len(names), SACCT_IDS):
            asked = names[start : start + SACCT_IDS]
            for record in await self._ask_accounts(sacct.ask_accounts(asked, site.version), site.version):
                for name in name_record(record, asked):
                    found[name].append(record)
        for runs in found.values():
            runs.sort(key=lambda run: run.submit or 0.0)
        return found

    async def batch_steps(self, names: Sequence[str]) -> dict[str, AccountingRecord]:
        """The batch steps of those jobs' newest runs, where the accounting has them.

        Raises OverspanError when the accounting does not answer.
        """
        site = await self.site()
        newest: dict[str, AccountingRecord] = {}
        words = sacct.ask_accounts(names, site.version, steps=True)
        for record in await self._ask_accounts(words, site.version):
            if record.step == BATCH_STEP:
                for name in name_record(replace(record, step=""), names):
                    newest[name] = max(newest.get(name, record), record, key=lambda one: one.start or 0.0)
        return newest

    async def find_in_accounts(self, keys: Iterable[Key], since: float) -> dict[Key, int]:
        """Native ids of the user's jobs since a time that are one of the launches; for an element that of its array."""
        site = await self.site()
        found: dict[Key, int] = {}
        words = sacct.ask_since(site.user, since, site.version)
        indices: dict[str, set[int | None]] = {}
        for key in keys:
            indices.setdefault(key.token, set()).add(key.element)
        # Of several that have a token, one that has had nodes counts before one that was cancelled while it waited.
        for record in sorted(await self._ask_accounts(words, site.version), key=lambda one: not one.nodes):
            for token in {*list_tokens(record.comment), *list_tokens(record.submit_line)} & indices.keys():
                for index in indices[token]:
                    if index is None:
                        found.setdefault(Key(token), record.raw)
                    elif index == record.array_index or (record.rest and has_index(record.rest, index)):
                        found.setdefault(Key(token, index), record.array_job or record.raw)
        return found

    async def _ask_accounts(self, words: Sequence[str], version: tuple[int, ...]) -> tuple[AccountingRecord, ...]:
        done = await self.transport.run(words, timeout=self.timeout)
        if done.rc != 0:
            raise _unanswered(read_failure(done.words, done.rc).error())
        answer = sacct.read_accounts(done.text, version)
        if answer.torn:
            raise Unreachable("the answer of sacct is cut off")
        return answer.records

    async def nodes(self) -> list[Node]:
        """Every node, once for each of its partitions."""
        done = await self.transport.run(nodes.ask_nodes(), timeout=self.timeout)
        if done.rc != 0:
            raise _unanswered(read_failure(done.words, done.rc).error())
        found = nodes.read_nodes(done.text)
        self.known_nodes = tuple(found)
        return found

    async def addresses(self, names: Iterable[str]) -> Mapping[str, str]:
        """The nodes' addresses by name. Slurm is asked only for a new name; a failure adds no addresses."""
        if any(name and name not in self._addresses for name in names):
            done = await self.transport.run(nodes.ask_addresses(), timeout=self.timeout)
            if done.rc == 0:
                self._addresses.update(nodes.read_addresses(done.text))
        return self._addresses

    async def describe(self, native: str) -> dict[str, str]:
        """The fields of one job (scontrol show job); empty if Slurm does not know it any more."""
        done = await self.transport.run(ask("scontrol", "--oneliner", "show", "job", native), timeout=self.timeout)
        if done.rc != 0:
            failure = read_failure(done.words, done.rc)
            if failure.transient:
                raise failure.error()
            return {}
        return dict(read_pairs(done.text.splitlines()[0])) if done.text.strip() else {}


def name_record(record: AccountingRecord, wanted: Iterable[str]) -> set[str]:
    """Which of the wanted jobs a record is about; the record of an array's waiting elements is about many."""
    if record.step:
        return set()
    names = {str(record.raw)}
    if record.array_job is not None and record.array_index is not None:
        names.add(f"{record.array_job}_{record.array_index}")
    if record.rest:
        head = f"{record.array_job}_"
        indices = {name: name.removeprefix(head) for name in wanted if name.startswith(head)}
        names.update(name for name, index in indices.items() if has_index(record.rest, int(index)))
    return names.intersection(wanted)


def _unanswered(error: OverspanError) -> OverspanError:
    """Make the error of a query transient: a query that failed says nothing about any job."""
    if error.transient:
        return error
    return Unreachable(error.message, remedy=error.remedy)


def read_config(text: str) -> dict[str, str]:
    """The lines NAME = VALUE of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def read_version(text: str) -> tuple[int, ...]:
    """The numbers of a version such as 22.05.8 or 23.02.0-0rc1; none for a text without any."""
    match = re.match(r"(?:slurm\s+)?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def read_seconds(text: str) -> int | None:
    """The number of a setting such as `10 sec`."""
    match = re.match(r"\s*(\d+)\b", text)
    return int(match[1]) if match else None
