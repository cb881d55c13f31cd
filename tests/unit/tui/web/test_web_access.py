"""Who gets in: addresses, names, origins, invitations, tries; and what a viewer is started with."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count

import pytest

from overspan.bridge.cli.jobs.top import OPTIONS
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import parse
from overspan.tui.web.address import WebAddress, is_same_origin, parse_address
from overspan.tui.web.command import serve_web
from overspan.tui.web.options import list_viewer_words
from overspan.tui.web.server import take_message
from overspan.tui.web.viewer import Viewer, fit_size, make_environment
from overspan.tui.web.web_access import REFILL_SECONDS, SESSIONS, TRIES, Entry, WebAccess


class Hand:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def open_access() -> tuple[WebAccess, Hand]:
    clock, numbers = Hand(), count(1)
    return WebAccess(clock, lambda: f"secret-{next(numbers)}"), clock


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("8080", ("127.0.0.1", 8080), "http://127.0.0.1:8080/"),
        (":80", ("127.0.0.1", 80), "http://127.0.0.1:80/"),
        ("0.0.0.0:1", ("0.0.0.0", 1), "http://127.0.0.1:1/"),
        ("[::1]:9", ("::1", 9), "http://[::1]:9/"),
        ("login1:0", ("login1", 0), "http://login1:0/"),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int], url: str) -> None:
    assert parse_address(text) == WebAddress(*address)
    assert parse_address(text).url == url


@pytest.mark.parametrize(
    "text", ["", "port", "1.2.3.4", "host:", "host:65536", "a/b:80", "u@host:80", "host:-1", "host:٣"]
)
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no"):
        parse_address(text)


@pytest.mark.parametrize(
    ("listening", "asked", "answers"),
    [
        ("127.0.0.1", "127.0.0.1:8080", True),
        ("127.0.0.1", "localhost:9999", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "[::1]:8080", True),
        ("127.0.0.1", "evil.example:8080", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "192.168.0.7:8080", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "[", False),
        ("127.0.0.1", "localhost@evil.example", False),
        ("0.0.0.0", "192.168.0.7:8080", True),
        ("0.0.0.0", "evil.example:8080", False),
        ("login1", "login1:8080", True),
        ("login1", "login2:8080", False),
    ],
)
def test_only_names_that_nobody_else_can_point_here_are_answered(listening: str, asked: str, answers: bool) -> None:
    assert WebAddress(listening, 8080).answers_to(asked) is answers


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("http://localhost:8080", True),
        ("https://localhost:8080", True),
        ("http://LOCALHOST:8080", True),
        ("http://localhost:8081", False),
        ("http://localhost", False),
        ("http://evil.example", False),
        ("http://localhost:8080.evil.example", False),
        ("http://user@localhost:8080", False),
        ("file://localhost:8080", False),
        ("null", False),
        ("", False),
        (None, False),
    ],
)
def test_an_origin_is_the_same_to_the_letter(origin: str | None, same: bool) -> None:
    assert is_same_origin(origin, "localhost:8080") is same


def test_an_invitation_is_good_for_one_session() -> None:
    access, _ = open_access()
    invitation = access.invitation
    entry = access.enter("here", invitation)
    assert entry.session and access.knows(entry.session)
    assert access.invitation != invitation and not access.knows(invitation) and not access.knows("")
    assert access.enter("here", invitation) == Entry("")
    assert not access.knows(access.invitation)


def test_wrong_invitations_are_counted_by_address_and_forgiven_slowly() -> None:
    access, clock = open_access()
    assert [access.enter("a", "wrong").wait for _ in range(TRIES)] == [0.0] * TRIES
    assert access.enter("a", access.invitation).wait > 0
    assert access.enter("b", access.invitation).session
    clock.now = REFILL_SECONDS - 0.1
    assert access.enter("a", access.invitation).wait == pytest.approx(0.1)
    clock.now = REFILL_SECONDS
    assert access.enter("a", access.invitation).session


def test_the_oldest_session_makes_room() -> None:
    access, _ = open_access()
    sessions = [access.enter("here", access.invitation).session for _ in range(SESSIONS + 1)]
    assert [access.knows(session) for session in sessions] == [False] + [True] * SESSIONS


def test_an_invitation_that_is_no_ascii_is_wrong() -> None:
    assert open_access()[0].enter("here", "schlüssel") == Entry("")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--web", "8080"), ["--web-viewer=look"]),
        (("--web=8080", "--demo", "--web-actions"), ["--demo", "--web-viewer=order"]),
        (("--web", "1", "--web-viewer=order"), ["--web-viewer=look"]),
    ],
)
def test_a_viewer_has_the_same_options_and_no_more_rights(given: tuple[str, ...], words: list[str]) -> None:
    assert list_viewer_words(parse(given, OPTIONS), OPTIONS) == words


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        ("120", "40", (120, 40)),
        (100, 30, (100, 30)),
        ("999999999999", "-1", (80, 24)),
        (10**9, 0, (500, 5)),
        (None, [], (80, 24)),
        (True, 2.5, (80, 24)),
        ("٣", "0x10", (80, 24)),
    ],
)
def test_a_window_has_a_size_within_reason(width: object, height: object, size: tuple[int, int]) -> None:
    assert fit_size(width, height) == size


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overspan.tui.web.command.find_spec", lambda name: None)
    with pytest.raises(InvalidRequest) as caught:
        serve_web(parse(("--web", "1"), OPTIONS), OPTIONS, {})
    assert caught.value.remedy == "pip install 'overspan[web]'"


def test_a_viewers_environment_is_a_browsers() -> None:
    found = make_environment({"NO_COLOR": "1", "LC_ALL": "C", "TMUX": "x", "HOME": "/home/ana", "TERM": "dumb"}, 90, 30)
    assert found["LC_CTYPE"] == "C.UTF-8" and "LC_ALL" not in found
    assert "NO_COLOR" not in found and "TMUX" not in found
    assert (found["HOME"], found["COLUMNS"], found["ROWS"], found["TERM"]) == (
        "/home/ana",
        "90",
        "30",
        "xterm-256color",
    )


ECHO = """
import sys
out = sys.stdout.buffer
out.write(b"noise\\n__GANGLION__\\n" + b"D" + (2).to_bytes(4, "big") + b"hi")
out.write(b"M" + (2).to_bytes(4, "big") + b"[]" + b"P" + (1).to_bytes(4, "big") + b"x")
out.flush()
while True:
    head = sys.stdin.buffer.read(5)
    if not head:
        break
    data = sys.stdin.buffer.read(int.from_bytes(head[1:], "big"))
    if STUBBORN is False and b"quit" in data:
        break
    out.write(b"D" + len(head[:1] + data).to_bytes(4, "big") + head[:1] + data)
    out.flush()
"""


async def talk(script: str) -> tuple[list[bytes], list[str]]:
    """What a process shows that is told things, and what the browser is answered."""
    shown: list[bytes] = []
    replies: list[str] = []

    async def send(data: bytes) -> None:
        shown.append(data)

    async def reply(text: str) -> None:
        replies.append(text)

    viewer = Viewer((sys.executable, "-c", script), {}, send)
    running = asyncio.ensure_future(viewer.run(80, 24))
    while not shown:
        await asyncio.sleep(0.01)
    messages: list[object] = [["stdin", "j"], ["resize", {"width": 90, "height": 10**6}], ["ping", "1"], ["focus"]]
    for message in (*messages, ["open", "x"], []):
        await take_message(json.dumps(message), viewer, reply)
    await take_message("[" * 100_000, viewer, reply)
    while len(shown) < 4:
        await asyncio.sleep(0.01)
    await viewer.stop()
    await asyncio.wait_for(running, 10)
    return shown, replies


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_viewer_shows_takes_and_ends(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overspan.tui.web.viewer.QUIT_SECONDS", 0.2 if stubborn else 10)
    script = f"STUBBORN = {stubborn}\n" + ECHO
    shown, replies = asyncio.run(asyncio.wait_for(talk(script), 30))
    assert shown[:4] == [
        b"hi", b"Dj", b'M{"type": "resize", "width": 90, "height": 200}', b'M{"type": "focus"}',
    ]  # fmt: skip
    assert replies == ['["pong", "1"]']
