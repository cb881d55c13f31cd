"""The terminal, lent to another program until it ends: a pager, an editor, a shell."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textual.app import SuspendNotSupported
from textual.screen import Screen

from overspan.bridge.client.terminal_texts import clean_text

_TIDY = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?1049l\x1b[?25h\x1b[0m"
"""Ends what a full-screen program begins: mouse, bracketed paste, keypad, alternate screen, hidden cursor, colours."""


def lend_terminal(
    screen: Screen[Any], words: Sequence[str], environment: Mapping[str, str] | None = None, greeting: str = ""
) -> None:
    """Run a program on the terminal, and come back when it ends. `greeting` is a line above what it writes.

    Where it fails, what it has said stays to be read until Enter. A program that is missing is told before the terminal
    is lent.
    """
    trouble = explain_missing(words[0], os.environ if environment is None else environment)
    if trouble:
        screen.notify(trouble, severity="error", markup=False)
        return
    try:
        with screen.app.suspend(), _leave_interrupts():
            with _keep_terminal(sys.__stdin__):
                if greeting:
                    print(clean_text(greeting), file=sys.__stderr__, flush=True)
                code = subprocess.run(words, env=environment, check=False).returncode
            if code < 0 and sys.__stderr__ is not None and sys.__stderr__.isatty():
                # Who is killed tidies nothing up.
                print(_TIDY, end="", file=sys.__stderr__, flush=True)
            if code:
                _wait_for_enter(f"It {describe_end(code)}. Enter goes back.")
    except SuspendNotSupported:
        screen.notify("there is no terminal for another program here", severity="error", markup=False)
    except OSError as error:
        screen.notify(clean_text(f"{words[0]}: {error.strerror}"), severity="error", markup=False)


def describe_end(code: int) -> str:
    """How a program has ended, by its exit code; negative: by a signal."""
    if code >= 0:
        return f"has ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def explain_missing(program: str, environment: Mapping[str, str]) -> str:
    """Why a program cannot be started, with what to do; empty where it can."""
    if shutil.which(program, path=environment.get("PATH", os.defpath)):
        return ""
    if os.path.dirname(program):
        return clean_text(f"{program} is not a program that can be started here")
    return clean_text(f"there is no {program} on PATH here: install it, or start `span top` where it is")


@contextlib.contextmanager
def _leave_interrupts() -> Iterator[None]:
    """Ctrl-C is the program's; a handler, unlike SIG_IGN, is not inherited."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


@contextlib.contextmanager
def _keep_terminal(stream: Any) -> Iterator[None]:
    """Take the terminal back as it was: a program that is killed leaves it raw, and to its own process group."""
    try:
        number = stream.fileno()
        attributes = termios.tcgetattr(number)
    except (OSError, ValueError, AttributeError, termios.error):
        yield
        return
    try:
        yield
    finally:
        former = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        # Not its controlling terminal, or a terminal that is gone.
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(number) != os.getpgrp():
                os.tcsetpgrp(number, os.getpgrp())
            # What was typed for the program and it did not read must not become orders here.
            termios.tcsetattr(number, termios.TCSAFLUSH, attributes)
        signal.signal(signal.SIGTTOU, former)


def _wait_for_enter(text: str) -> None:
    """Say something, and wait for a line."""
    print(f"\n{clean_text(text)}", file=sys.__stderr__, flush=True)
    if sys.__stdin__ is not None:
        with contextlib.suppress(OSError, ValueError):
            os.read(sys.__stdin__.fileno(), 4096)
