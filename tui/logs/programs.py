"""A log in the user's pager or editor: the file itself where it is on this machine, else a copy of its newest part."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from textual.screen import Screen

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.daemon.error_words import tell_error
from overspan.tui.logs.session import LogSession, find_file
from overspan.tui.terminal.lent_terminal import lend_terminal

COPIED = 64 << 20
"""Bytes of logs elsewhere that are copied for a program."""


def find_program(names: Sequence[str], others: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The words of the program that the user has chosen, else of the first one that there is; empty for none.

    Raises ValueError where a variable's quotation marks do not close.
    """
    for name in names:
        try:
            words = shlex.split(environment.get(name, ""))
        except ValueError:
            raise ValueError(f"${name} cannot be read: a quotation mark does not close") from None
        if words:
            return words
    return next((words for words in map(str.split, others) if shutil.which(words[0])), [])


def open_log(screen: Screen[Any], session: LogSession, names: Sequence[str], others: Sequence[str]) -> None:
    """Hand the terminal to a program that shows the log, until it ends."""
    if session.document is None or not session.document.streams:
        screen.notify("the log is empty", markup=False)
        return
    try:
        words = find_program(names, others, os.environ)
    except ValueError as error:
        screen.notify(str(error), severity="error", markup=False)
        return
    if not words:
        screen.notify(f"there is no {' or '.join(others)} here: set {names[0]}", severity="error", markup=False)
        return
    streams = session.document.streams
    path = find_file(streams, session.traits)
    if path:
        lend_terminal(screen, [*words, path])
        return
    try:
        folder = tempfile.mkdtemp(prefix="span-log-")
    except OSError as error:
        text = clean_text(f"the log cannot be copied to {error.filename or 'this machine'}: {error.strerror}")
        screen.notify(text, severity="error", markup=False)
        return
    copy = os.path.join(folder, "log")
    screen.notify("the log is copied to this machine", markup=False)

    def show(size: int) -> None:
        del size
        if not session.closed:
            lend_terminal(screen, [*words, copy])
        shutil.rmtree(folder, ignore_errors=True)

    def fail(error: OverspanError) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        screen.notify(tell_error(error), severity="error", markup=False)

    stopped, most = threading.Event(), COPIED // max(1, len(streams))
    screen.app.questions.ask(  # type: ignore[attr-defined]
        "log-save", lambda source: session.reader.save(source, streams, copy, stopped, most), show, fail
    )
