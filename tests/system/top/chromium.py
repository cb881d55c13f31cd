"""Headless Chromium, driven by its DevTools protocol: pages are opened, asked and photographed."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Its path; empty where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


_REPLACED = "Inspected target navigated or closed"


class PageReplaced(Exception):
    """The page that was asked is replaced by another one."""


class Tab:
    """A tab."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        """What it told meanwhile: requests, messages on its console."""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, with its answer. Raises PageReplaced where another page takes its place."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv())
            if message.get("id") == number:
                if message.get("error", {}).get("message") == _REPLACED:
                    raise PageReplaced(method)
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def read(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page; None while another page takes its place."""
        try:
            answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        except PageReplaced:
            return None
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Go to a page."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # Without a window manager no page would have the focus, and xterm.js would tell the application so.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Page.navigate", url=url)

    def take_picture(self, path: Path) -> bytes:
        """The page as PNG."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(data)
        return data

    def press(self, key: str) -> Tab:
        """A letter on the keyboard."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        return self

    def list_requests(self) -> list[str]:
        """All addresses that were asked for so far."""
        self.read("0")
        told = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(each["request"]["url"]) for each in told]

    def list_complaints(self) -> list[str]:
        """What the console has of errors: scripts that failed, what a policy forbade."""
        self.read("0")
        logged = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        thrown = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        return [f"{each['text']} {each.get('url')}" for each in logged if each["level"] == "error"] + [
            str(each) for each in thrown
        ]


@contextmanager
def open_tab(folder: Path, wait_until: Callable[..., Any], width: int = 1180, height: int = 680) -> Iterator[Tab]:
    """A browser with a profile of its own."""
    command = [
        *(find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={folder / 'profile'}"),
        *(f"--window-size={width},{height}", "--disable-dev-shm-usage", "about:blank"),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            told = folder / "profile" / "DevToolsActivePort"
            wait_until(lambda: told.exists() and "\n" in told.read_text(), 30)
            with urlopen(f"http://127.0.0.1:{told.read_text().split()[0]}/json/list", timeout=10) as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
            socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=30)
            try:
                yield Tab(socket)
            finally:
                socket.close()
        finally:
            process.terminate()
            process.wait(20)
