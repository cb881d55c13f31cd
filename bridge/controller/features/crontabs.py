"""Crontabs: a user's file of entries, each a schedule; installed as a whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from overspan.bridge.controller.features.schedules import ScheduleEntry, Schedules
from overspan.bridge.controller.submission.submitter import Submitted
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError, Place
from overspan.bridge.readers.crontab import FILE, CrontabEntry, read_crontab
from overspan.bridge.readers.submission import SCRIPT, Submission
from overspan.bridge.store.schedule_records import CRONTAB, Crontab, StoredSchedule

DISABLED = "#DISABLED: "
"""Before the lines of a paused entry, as scrontab -l has it."""
_INHERITED = ("SBATCH_", "SLURM_", "OVERSPAN_", "SKYPILOT_")
"""Variables of the job that installed the crontab, which are not for its entries."""


class Crontabs:
    """Installs, shows and removes crontabs."""

    def __init__(self, schedules: Schedules) -> None:
        self.schedules = schedules
        self.repository = schedules.recorder.repository
        self._turn = asyncio.Lock()

    async def show(self, user: str) -> str:
        """The user's crontab, with the lines of paused entries disabled. Raises NotFound."""
        text = await self.repository.schedules.read_crontab(user)
        if text is None:
            raise NotFound(f"no crontab for {user}", remedy="`span cron -e` makes one")
        lines = text.splitlines(keepends=True)
        for kept in self._entries(user):
            if kept.facts.paused:
                for number in range(kept.facts.first_line - 1, min(kept.facts.last_line, len(lines))):
                    lines[number] = DISABLED + lines[number]
        return "".join(lines)

    async def install(self, text: str, base: Submission) -> list[int]:
        """Put a crontab in place of the user's former one; the schedules' ids in the order of the entries.

        An entry that was there before, unchanged, keeps its id, counts and environment. `base` says where and by whom.
        InvalidRequest with the line of what is wrong; then nothing was changed.
        """
        file, base = base.file or FILE, replace(base, file="")
        entries = read_crontab(text, file)
        async with self._turn, AsyncExitStack() as stack:
            former = self._entries(base.user)
            for kept in former:
                await stack.enter_async_context(kept.lock)
            marks: dict[str, list[ScheduleEntry]] = {}
            for kept in former:
                if not kept.gone:
                    marks.setdefault(kept.facts.mark, []).append(kept)
            records = []
            for entry in entries:
                same = marks.get(_mark(entry))
                records.append(await self._record(entry, base, same.pop(0) if same else None, file))
            ids = await self.repository.schedules.replace_crontab(Crontab(base.user, text, tuple(records)))
            await self._take_in(former, [replace(record, id=key) for record, key in zip(records, ids, strict=True)])
        return ids

    async def remove(self, user: str) -> None:
        """Remove the user's crontab with its schedules; jobs that they have made go on."""
        async with self._turn, AsyncExitStack() as stack:
            former = self._entries(user)
            for kept in former:
                await stack.enter_async_context(kept.lock)
            await self.repository.schedules.replace_crontab(Crontab(user, None))
            await self._take_in(former, [])

    def _entries(self, user: str) -> list[ScheduleEntry]:
        found = [kept for kept in self.schedules if (kept.facts.source, kept.stored.user) == (CRONTAB, user)]
        return sorted(found, key=lambda kept: kept.stored.id)

    async def _record(
        self, entry: CrontabEntry, base: Submission, former: ScheduleEntry | None, file: str
    ) -> StoredSchedule:
        submission = make_submission(entry, base)
        answer = await self._check(submission, Place(file, entry.first_line))
        first, last = entry.first_line, entry.last_line
        if former is not None:
            stored = former.stored
            facts = replace(stored.facts, first_line=first, last_line=last)
            return replace(stored, version=stored.version + 1, facts=facts)
        new = await self.schedules.prepare(submission, answer, entry.schedule)
        facts = replace(new.facts, source=CRONTAB, mark=_mark(entry), first_line=first, last_line=last)
        return replace(new, facts=facts)

    async def _check(self, submission: Submission, place: Place) -> Submitted:
        try:
            answer = await self.schedules.submitter.check(submission)
        except OverspanError as error:
            raise InvalidRequest(error.message, remedy=error.remedy, place=place) from None
        for option in ("test_only", "wait"):
            if answer.options.get(option):
                raise InvalidRequest(f"--{option.replace('_', '-')} has no meaning in a crontab", place=place)
        return answer

    async def _take_in(self, former: list[ScheduleEntry], records: list[StoredSchedule]) -> None:
        known = {kept.stored.id: kept for kept in former}
        for record in records:
            kept = known.pop(record.id, None)
            if kept is None:
                await self.schedules.keep(record)
            else:
                kept.stored = record
        for schedule_id in known:
            self.schedules.drop(schedule_id)


def make_submission(entry: CrontabEntry, base: Submission) -> Submission:
    """The submission that an entry stands for: a script of its command, submitted in the user's home."""
    environment = {name: value for name, value in base.environment.items() if not name.startswith(_INHERITED)}
    return replace(
        base,
        kind=SCRIPT,
        text=entry.script,
        file="",
        argv=(f"--job-name={entry.name}", *entry.options),
        environment={**environment, **dict(entry.variables)},
        directory=_home(environment, base.directory),
        command=(entry.command,),
    )


def _home(environment: Mapping[str, str], directory: str) -> str:
    home = environment.get("HOME", "")
    return home if home.startswith("/") else directory


def _mark(entry: CrontabEntry) -> str:
    """The same for an entry that means the same."""
    parts = [entry.schedule.text, entry.schedule.timezone, entry.options, entry.command, entry.variables]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
