"""The command of `span top --web`: what a viewer is started as, and what the terminal is told."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import Option, Words
from overspan.tui.web.address import WebAddress, parse_address
from overspan.tui.web.options import WEB, list_viewer_words

_PR_SET_PDEATHSIG = 1


def serve_web(words: Words, table: Iterable[Option], environment: Mapping[str, str]) -> int:
    """Serve until it is interrupted; the exit code."""
    address = parse_address(words.last(WEB))
    if find_spec("textual_serve") is None or find_spec("aiohttp") is None:
        raise InvalidRequest("`span top --web` needs the package textual-serve", remedy="pip install 'overspan[web]'")
    from overspan.tui.web.server import TopServer

    command = (sys.executable, "-m", "overspan.bridge.cli", "top", *list_viewer_words(words, table))
    _warn(address)
    try:
        asyncio.run(TopServer(address, command, environment, _show_link).serve())
    except OSError as error:
        raise InvalidRequest(f"cannot listen on {address.host}:{address.port}: {error.strerror or error}") from None
    return 0


def end_with_server() -> None:
    """In a viewer: end when the server does, however that ends."""
    server = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != server:
        raise SystemExit(0)


def _warn(address: WebAddress) -> None:
    if not address.is_loopback:
        port = address.port or "PORT"
        print(
            f"span: {address.host} is reached from other machines, and what is sent is not encrypted; safer:\n"
            f"  span top --web {port}, and on the other machine ssh -L {port}:localhost:{port}",
            file=sys.stderr,
        )


def _show_link(url: str) -> None:
    if sys.stderr.isatty():
        print("Open this link in a browser; it works once, and then another one follows:", file=sys.stderr)
    print(url, flush=True)
