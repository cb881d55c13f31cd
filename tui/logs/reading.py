"""Reading logs from the daemon: called in a thread of questions, gives records that the screen takes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from overspan.bridge.cli.jobs.log_lines import LinePrinter, prefix
from overspan.bridge.cli.jobs.no_output import explain_silence
from overspan.bridge.client.array_logs import ArrayLogs
from overspan.bridge.client.log_reading import LogSource, key_of, order_pieces, read_pieces
from overspan.bridge.client.messages import LogPart, Stream, StreamKey
from overspan.bridge.client.records import JobFilter
from overspan.bridge.model.errors import Conflict, NotFound, OverspanError
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source
from overspan.tui.logs.document import Asked
from overspan.tui.queue.tree import Kind


class LogNews(NamedTuple):
    """The logs that there are, parts of them, and in words why there are none. `traits` are the cluster's."""

    streams: Sequence[Stream]
    parts: Sequence[tuple[StreamKey, LogPart]] = ()
    silence: str = ""
    traits: frozenset[str] = frozenset()


class LogReader:
    """Reads the logs of one target; used by one thread at a time."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._arrays: ArrayLogs | None = None
        self._traits: frozenset[str] | None = None

    def look(self, source: Source, times: bool) -> LogNews:
        """The logs that there are, with `times` also when they grew; where there are none, why."""
        try:
            streams = self._log_source(source).streams(self.target.ref, times)
        except NotFound as error:
            return LogNews((), silence=self._explain(source) or word_error(error.message, error.remedy))
        if self._traits is None:
            self._traits = _find_traits(source, self.target.cluster)
        return LogNews(streams, silence="" if streams else self._explain(source), traits=self._traits)

    def read(self, source: Source, asked: Sequence[Asked]) -> list[tuple[StreamKey, LogPart]]:
        """Parts of logs. One that is gone, or cannot be read, hides no other."""
        parts, trouble = [], None
        for key, wanted in asked:
            try:
                part = source.log_part(key.job or self.target.ref, key, wanted.offset, wanted.limit)
                parts.append((key, part))
            except OverspanError as error:
                trouble = error
        if trouble is not None and not parts:
            raise trouble
        return parts

    def _log_source(self, source: Source) -> LogSource:
        """The target's own logs; for an array, or some elements, those of all of them."""
        if self.target.kind is not Kind.ARRAY and "[" not in self.target.ref:
            return cast(LogSource, source)
        if self._arrays is None:
            self._arrays = ArrayLogs(cast(Any, source))
        return self._arrays

    def _explain(self, source: Source) -> str:
        """Why there are no logs, in the words of `span logs`."""
        job = self.target.ref
        try:
            shown = source.show(job)
            if shown.get("array") and shown.get("ended_at"):
                # The array itself starts nothing: an element knows more.
                rows = source.history(JobFilter(ids=(job,))).rows
                job = next((row.ref for row in rows if row.array_index is not None), job)
                shown = source.show(job)
            return explain_silence(job, shown, self._task(shown), source.clusters()).message
        except NotFound as error:
            return word_error(error.message, error.remedy)

    def _task(self, shown: dict[str, Any]) -> str:
        """The task that the target is, by its number in the group."""
        _, plus, number = self.target.ref.partition("+")
        tasks = shown.get("tasks") or ()
        return next((str(task["name"]) for task in tasks if plus and str(task.get("offset")) == number), "")

    def save(
        self, source: Source, streams: Sequence[Stream], path: str, stopped: threading.Event, most: int | None = None
    ) -> int:
        """Write logs to a file that does not exist yet, or the newest bytes of each; its size. Raises Conflict."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise Conflict(f"{path} exists already: nothing was written", remedy="give another name") from None
        except OSError as error:
            raise OverspanError(f"{path} cannot be written: {error.strerror}") from None
        try:
            with open(fd, "wb") as file:
                self._copy(source, streams, file.write, stopped, most)
                return file.tell()
        except (OSError, OverspanError) as error:
            # Half a log is worse than none: its reader would take it for the whole.
            os.unlink(path)
            why = error.message if isinstance(error, OverspanError) else error.strerror
            raise OverspanError(f"{path} was not saved: {why}") from None

    def _copy(
        self,
        source: Source,
        streams: Sequence[Stream],
        write: Callable[[bytes], Any],
        stopped: threading.Event,
        most: int | None,
    ) -> None:
        """Write logs; of several, each line behind the name of its member."""

        def read(key: StreamKey, offset: int, limit: int) -> LogPart:
            if stopped.is_set():
                raise OverspanError("the log was closed before all of it was there")
            return source.log_part(key.job or self.target.ref, key, offset, limit)

        width = max(len(prefix(stream)) for stream in streams)
        lines = LinePrinter(write, width) if len(streams) > 1 else None
        begins = {key_of(one): 0 if most is None else max(0, one.size - most) for one in streams}
        for piece, data in read_pieces(order_pieces(streams, begins), read):
            if lines is None:
                write(data)
            else:
                lines.feed(piece.stream, data)
        if lines is not None:
            lines.close()


def _find_traits(source: Source, name: str) -> frozenset[str]:
    return frozenset(trait for one in source.clusters() if one.get("name") == name for trait in one.get("traits", ()))
