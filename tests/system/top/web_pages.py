"""A web server of `span top` in a process of its own, and what a browser would send it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import websocket

READ_SECONDS = 60.0


class Page(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


class WebTop:
    """`span top --web`, as it runs; `link` is the newest."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.link = self.read_link()
        self.port = urlsplit(self.link).port
        self.host = f"127.0.0.1:{self.port}"
        self.origin = f"http://{self.host}"

    def read_link(self) -> str:
        """The link that it shows next."""
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        return self.link

    @property
    def invitation(self) -> str:
        """The invitation of the link."""
        return urlsplit(self.link).fragment

    def ask(self, path: str, form: Mapping[str, str] | None = None, **headers: str) -> Page:
        """Ask for a page, or send a form; names of headers have `_` for `-`."""
        data = None if form is None else urlencode(form).encode()
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        try:
            with urlopen(Request(self.origin + path, data, given), timeout=10) as answer:
                return Page(answer.status, dict(answer.headers), answer.read().decode(errors="replace"))
        except HTTPError as error:
            with error:
                return Page(error.code, dict(error.headers), error.read().decode())

    def enter(self) -> str:
        """Use the link; gives the cookie."""
        answer = self.ask("/session", {"invitation": self.invitation}, Origin=self.origin)
        assert answer.status == 204, answer
        self.read_link()
        return answer.headers["Set-Cookie"].partition(";")[0]

    @contextmanager
    def look(self, cookie: str, origin: str = "", host: str = "") -> Iterator[websocket.WebSocket]:
        """A browser's websocket."""
        socket = websocket.create_connection(
            f"ws://{self.host}/ws?width=100&height=30",
            timeout=20,
            origin=origin or self.origin,
            cookie=cookie,
            host=host or self.host,
        )
        try:
            yield socket
        finally:
            socket.close()


def read_until(socket: websocket.WebSocket, word: str) -> str:
    """What the terminal shows, up to a word."""
    shown, end = "", time.monotonic() + READ_SECONDS
    while word not in shown:
        assert time.monotonic() < end, f"{word!r} was never shown: {shown[-200:]}"
        data = socket.recv()
        assert data, f"the socket was closed before {word!r}: {shown[-200:]}"
        shown += data.decode() if isinstance(data, bytes) else ""
    return shown


def send(socket: websocket.WebSocket, kind: str, value: object) -> None:
    """A message of the browser."""
    socket.send(json.dumps([kind, value]))


@contextmanager
def open_web(environment: Mapping[str, str], *words: str) -> Iterator[WebTop]:
    """Start the server at a free port, and end it."""
    command = [sys.executable, "-m", "overspan.bridge.cli", "top", "--web", "127.0.0.1:0", *words]
    with subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield WebTop(process)
        finally:
            process.terminate()
            process.wait(20)
