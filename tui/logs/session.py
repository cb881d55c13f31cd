"""What is read of a target's logs at the moment, and what is asked next. Nothing here imports Textual.

One question about parts is open at a time; a jump to elsewhere replaces it. A search has questions of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Sequence
from typing import Any, Protocol

from overspan.bridge.client.log_reading import key_of
from overspan.bridge.client.messages import LogFinds, LogPart, LogSearch, Stream, StreamKey
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import tell_error
from overspan.tui.daemon.questions import Questions
from overspan.tui.daemon.source import Source
from overspan.tui.logs.choice import Choice, member_of
from overspan.tui.logs.document import Asked, LogDocument, LogRow
from overspan.tui.logs.reading import LogNews, LogReader
from overspan.tui.logs.search import MOST, LogSearching
from overspan.tui.logs.status import SearchFacts, format_bytes
from overspan.tui.logs.window import PART

FAR = 16 * PART
"""Bytes that were written since the last look, beyond which following leaves out what is not the newest."""
SLOW_TICKS = 5
"""A log that nothing is added to any more is looked at each so many seconds."""
RESTS = 5
"""A look at many logs, or ones far away, is followed by a rest of so many times its duration."""
FILLS = 8
"""Parts that are read by themselves to fill the screen."""

Parts = Sequence[tuple[StreamKey, LogPart]]


class LogScene(Protocol):
    """Where the lines are shown."""

    following: bool

    @property
    def filled(self) -> bool:
        """Whether the lines fill it."""

    @property
    def wants(self) -> int:
        """Which way the reader goes, where there are no more lines: -1 up, 1 down, 0 neither."""

    def draw(self) -> None:
        """Show the lines that there are now."""

    def mark_matches(self) -> None:
        """Mark what the search is for."""

    def show_hit(self, row: LogRow) -> None:
        """Bring a line that matches into sight."""


class LogSession:
    """The logs that were chosen, and the parts of them that are here."""

    def __init__(self, target: Target, questions: Questions, scene: LogScene, clock: Callable[[], float]) -> None:
        self.target = target
        self.choice = Choice()
        self.streams: Sequence[Stream] = ()
        self.document: LogDocument | None = None
        self.reader = LogReader(target)
        self.silence = "asking the daemon..."
        self.trouble = ""
        self.traits: frozenset[str] = frozenset()
        """Of the cluster."""
        self._seen: dict[StreamKey, int] = {}
        self.search: LogSearching | None = None
        self._postponed: tuple[str, bool] | None = None
        """A search that begins when the logs are known: its pattern, and whether only lines that match are shown."""
        self.only = False
        """Whether only lines that match are shown."""
        self.awaited: bool | None = None
        """Which match is looked for: an older one, or a newer one."""
        self.hit: LogRow | None = None
        self.closed = False
        self._questions = questions
        self._scene = scene
        self._clock = clock
        self._asking = False
        self._searching = False
        self._round = 0
        self._ticks = 0
        self._fills = 0
        self._over: dict[StreamKey, bool] = {}
        self._rested = 0.0
        self._then: Callable[[], None] | None = None

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether lines that the reader waits for are on their way."""
        return self._asking and self._then is not None

    @property
    def over(self) -> bool:
        """Whether nothing more can come."""
        return bool(self._over) and all(self._over.values())

    def rows(self) -> Sequence[LogRow]:
        """The lines to show."""
        if self.document is None:
            return ()
        if self.only and self.search is not None:
            return self.search.rows(self.document)
        return self.document.rows()

    # --- looking ------------------------------------------------------------------------------------------------------

    def choose(self, choice: Choice) -> None:
        """Read other logs."""
        self.choice, self.document = choice, None
        self._seen, self._over, self._fills = {}, {}, 0
        self.end_search()
        self._scene.following = True
        self.silence = "asking the daemon..."
        self._scene.draw()
        self._look(force=True)

    def tick(self) -> None:
        """A second has passed: look for what was written."""
        self._ticks += 1
        if time.monotonic() < self._rested:
            return
        if not self._asking and (not self.over or self._ticks % SLOW_TICKS == 0):
            self._look()

    def retry(self) -> None:
        """Look at once."""
        if not self._asking:
            self._look()

    def _look(self, *, force: bool = False) -> None:
        times = self.document is None

        def look(source: Source) -> LogNews:
            begun = time.monotonic()
            try:
                return self.reader.look(source, times)
            finally:
                end = time.monotonic()
                self._rested = end + RESTS * (end - begun)

        self._ask(look, self._take_news, force=force)

    def _take_news(self, news: LogNews) -> None:
        self.traits = news.traits or self.traits
        if not news.streams and self.document is not None:
            # Its files were removed: what was read stays.
            self.trouble = news.silence
            return
        self.silence = news.silence
        self.streams = news.streams
        chosen = self.choice.select(news.streams)
        if self.document is None:
            if chosen:
                self.document = LogDocument(chosen)
                self.read(self.document.want_end())
                self._begin_postponed()
            elif news.streams:
                self.silence = "there is no such log; `[` `]` choose another"
            self._scene.draw()
            return
        now = self._clock()
        for stream in chosen:
            begins = self._begins_attempt(self.document, stream)
            self.document.note_size(stream, now)
            if begins:
                name = member_of(stream).name
                self.document.windows[key_of(stream)].mark(f"{name}: attempt {stream.attempt} begins")
        self._read_growth(self.document)

    @staticmethod
    def _begins_attempt(document: LogDocument, stream: Stream) -> bool:
        attempts = [key.attempt or 0 for key in document.windows if member_of(key) == member_of(stream)]
        return bool(attempts) and stream.attempt > max(attempts)

    def _read_growth(self, document: LogDocument) -> None:
        self._grow_search(document)
        growth = document.want_growth()
        if self._scene.following and document.behind > FAR:
            skipped = document.behind - PART
            growth = document.want_end()
            document.mark(f"{format_bytes(skipped)} were written too fast to follow, and are left out here")
        elif not self._scene.following:
            windows = document.windows
            growth = [one for one in growth if windows[one.key].behind <= PART and not windows[one.key].full]
        if not growth and not self.over and self._ticks % SLOW_TICKS == 0:
            # Nothing came: it may be over.
            growth = [Asked(key, window.want_after()) for key, window in document.windows.items() if not window.behind]
        if growth:
            self.read(growth, force=False)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, asked: Sequence[Asked], then: Callable[[], None] | None = None, *, force: bool = True) -> None:
        """Read parts, then do something; `force` gives up what is being read."""
        if asked and self._asking and not force:
            return
        if asked:
            self._then = then
            self._ask(lambda source: self.reader.read(source, asked), self._take_parts, force=force)
        elif then is not None:
            then()

    def _take_parts(self, parts: Parts) -> None:
        if self.document is None:
            return
        self.document.take(parts)
        self._over.update((key, part.over) for key, part in parts)
        then, self._then = self._then, None
        self._grow_search(self.document)
        self._scene.draw()
        if then is not None:
            then()

    def note_seen(self) -> None:
        """The end is in sight: what is written from now on is new."""
        self._seen = dict(self.document.sizes()) if self.document is not None else {}

    def count_new(self) -> int:
        """Lines that were written since the end was in sight, as far as they are here."""
        document = self.document
        return document.count_behind(self._seen) if document is not None and not self.only else 0

    def go_on(self) -> None:
        """Read what the screen has room for, or what the reader goes towards."""
        document, wants = self.document, self._scene.wants
        if document is None or self._asking or self.only:
            return
        if self._scene.following and document.behind:
            self._read_growth(document)
        elif not self._scene.filled and self._fills < FILLS and (before := document.want_before()):
            self._fills += 1
            self.read(before, force=False)
        elif wants < 0:
            self.read(document.want_before(), force=False)
        elif wants > 0:
            self.read(document.want_after(), force=False)

    # --- searching ----------------------------------------------------------------------------------------------------

    def begin_search(self, text: str, only: bool, near: LogRow | None = None) -> None:
        """Search all of the chosen logs, the newest lines first, or those before a line. ValueError: wrong pattern."""
        if self.document is None:
            # It begins as soon as it is known which logs there are; a wrong pattern is told at once.
            LogSearching(text, {}, None)
            self._postponed = (text, only)
            return
        place = near.line.end if near is not None and not only else None
        self.search = LogSearching(text, self.document.sizes(), place)
        self.only, self.hit = only, None
        self.awaited = None if only else True
        self._searching = False
        self._ask_search()
        self._scene.draw()

    def _begin_postponed(self) -> None:
        """Begin the search that was typed before it was known which logs there are."""
        if self._postponed is not None:
            (text, only), self._postponed = self._postponed, None
            self.begin_search(text, only)
            self._scene.mark_matches()

    def end_search(self) -> None:
        """Search no more, and show all lines."""
        self.search, self.only, self.awaited, self.hit = None, False, None, None
        self._postponed = None

    def find_hit(self, older: bool, near: LogRow | None) -> None:
        """Go to the next match, from the one that was shown or from a line."""
        if self.search is None or self.document is None:
            return
        found = self.search.find_next(self.document, self.hit or near, older)
        self.awaited = None if found is not None or not self._searching else older
        if found is not None:
            self.hit = found
            self._scene.show_hit(found)

    def _ask_search(self) -> None:
        search = self.search
        question = None if search is None or self._searching else search.next_question()
        if search is None or question is None:
            return
        key, wanted = question
        self._searching = True

        def take(finds: LogFinds) -> None:
            if self.search is search and not self.closed:
                self._take_finds(search, key, wanted, finds)

        def fail(error: OverspanError) -> None:
            if self.search is search:
                self._searching, self.awaited = False, None
                search.fail(key, tell_error(error))
                self._scene.draw()

        ref = key.job or self.target.ref
        self._questions.ask("log-search", lambda source: source.search_log(ref, key, wanted), take, fail)

    def _take_finds(self, search: LogSearching, key: StreamKey, wanted: LogSearch, finds: LogFinds) -> None:
        self._searching = False
        search.take(key, wanted, finds)
        self._ask_search()
        self._scene.draw()

    def _grow_search(self, document: LogDocument) -> None:
        if self.search is None:
            return
        grown = [
            self.search.grow(key, window.settled, window.size)
            for key, window in document.windows.items()
            if not window.behind or not self._scene.following
        ]
        if any(grown):
            self._ask_search()

    def describe_search(self, slow: bool) -> SearchFacts | None:
        """How far the search is."""
        search = self.search
        if search is None:
            return None
        return SearchFacts(
            text=clean_text(search.text),
            found=search.count,
            share=search.share,
            done=not self._searching,
            capped=search.count >= MOST,
            only=self.only,
            trouble=search.trouble,
            slow=slow,
            waits=self.awaited is not None,
            captured="captures_logs" in self.traits,
            first=max((log.first for log in search.logs.values()), default=0),
        )

    # --- questions ----------------------------------------------------------------------------------------------------

    def _ask(self, work: Callable[[Source], Any], take: Callable[[Any], None], *, force: bool) -> None:
        if self._asking and not force:
            return
        self._asking = True
        self._round += 1
        number = self._round

        def done(answer: Any) -> None:
            if self.closed or number != self._round:
                return
            self._asking, self.trouble = False, ""
            take(answer)
            self._scene.draw()
            self.go_on()

        def failed(error: OverspanError) -> None:
            if self.closed or number != self._round:
                return
            self._asking, self._then = False, None
            self.trouble = tell_error(error)
            if self.document is None:
                self.silence = self.trouble
            self._scene.draw()

        self._questions.ask("logs", work, done, failed)


def suggest_name(target: Target, choice: Choice) -> str:
    """The name of a file to save the log to."""
    words = [target.ref]
    if choice.member is not None:
        words = [choice.member.job or target.ref, f"{choice.member.task}-{choice.member.node}"]
    if choice.attempt is not None:
        words.append(f"attempt-{choice.attempt}")
    if choice.kind:
        words.append(choice.kind)
    text = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in ".".join(words))
    return f"span-{text}.log"


def find_file(streams: Sequence[Stream], traits: Container[str]) -> str:
    """The file of a log that is on this machine; empty where it is elsewhere, or there are several."""
    if "this_machine" in traits and len(streams) == 1 and os.path.isfile(streams[0].path):
        return streams[0].path
    return ""


def read_percent(text: str) -> float | None:
    """Per cent of a log, from 0 to 100; None where the text is a time. Raises ValueError for a share over all."""
    word = text.strip().removesuffix("%")
    try:
        share = float(word)
    except ValueError:
        return None
    if not 0 <= share <= 100:
        raise ValueError(f"{text!r}: per cent are from 0 to 100")
    return share


def format_mark(now: float) -> str:
    """The text of a mark."""
    return time.strftime("%H:%M:%S", time.localtime(now))
