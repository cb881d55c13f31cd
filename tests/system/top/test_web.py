"""`span top --web` without a browser: who gets in, who does not, and that it ends with the server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from tests.system.top.web_pages import WebTop, open_web, read_until, send

FOREIGN = "http://evil.example"


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebTop]:
    """One server over the simulated lab for the tests of this file."""
    folder = tmp_path_factory.mktemp("top")
    with open_web({**os.environ, "SPAN_STATE_DIR": str(folder / "state")}, "--demo") as web:
        yield web


def list_viewers(top: WebTop) -> list[int]:
    """The processes of its viewers."""
    tasks = Path(f"/proc/{top.process.pid}/task").glob("*/children")
    return [int(number) for path in tasks for number in path.read_text().split()]


def test_an_invitation_opens_once_and_sets_a_cookie_that_no_script_reads(top: WebTop) -> None:
    assert "the terminal shows" in top.ask("/").text
    used = top.invitation
    answer = top.ask("/session", {"invitation": used}, Origin=top.origin)
    assert answer.status == 204
    name, *rest = answer.headers["Set-Cookie"].split("; ")
    assert set(rest) == {"HttpOnly", "Path=/", "SameSite=Strict"} and used not in name
    top.read_link()
    assert top.invitation not in ("", used)
    again = top.ask("/session", {"invitation": used}, Origin=top.origin)
    assert again.status == 403 and "Set-Cookie" not in again.headers
    assert "textual-terminal" in top.ask("/", Cookie=name).text


def test_a_frame_comes_over_the_websocket_keys_go_back_and_the_viewer_ends(
    top: WebTop, wait_until: Callable[..., Any]
) -> None:
    cookie = top.enter()
    with top.look(cookie) as socket:
        shown = read_until(socket, "rl-math")
        assert "\x1b[" in shown
        (viewer,) = list_viewers(top)
        send(socket, "stdin", "/")
        # What is written are the cells that changed: of the placeholder all but the one below the cursor.
        read_until(socket, "ords")
        send(socket, "stdin", "zzz")
        read_until(socket, "match")
    wait_until(lambda: viewer not in list_viewers(top), 20)


@pytest.mark.parametrize(
    "message", ['{"a": 1}', "[]", "nonsense", '["stdin", 5]', '["resize", {"width": "x"}]', "[[]]"]
)
def test_a_message_that_is_none_is_left_out(top: WebTop, message: str) -> None:
    with top.look(top.enter()) as socket:
        socket.send(message)
        read_until(socket, "rl-math")


def test_no_cookie_no_websocket(top: WebTop) -> None:
    for cookie in ("", f"span-top-{top.port}=wrong"):
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"), top.look(cookie):
            pass


@pytest.mark.parametrize("origin", [FOREIGN, "http://127.0.0.1:1", "null", "http://127.0.0.1"])
def test_a_page_of_another_origin_cannot_open_it_with_the_cookie(top: WebTop, origin: str) -> None:
    cookie = top.enter()
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"), top.look(cookie, origin):
        pass
    before = top.invitation
    assert top.ask("/session", {"invitation": before}, Origin=origin).status == 403
    assert top.ask("/session", {"invitation": before}).status == 403
    assert top.invitation == before


def test_a_name_that_was_pointed_here_is_not_answered(top: WebTop) -> None:
    host = f"evil.example:{top.port}"
    cookie = top.enter()
    assert top.ask("/", Host=host).status == 421
    with pytest.raises(websocket.WebSocketBadStatusException, match="421"), top.look(cookie, f"http://{host}", host):
        pass


def test_nothing_comes_from_elsewhere(top: WebTop) -> None:
    cookie = top.enter()
    page = top.ask("/", Cookie=cookie)
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["Referrer-Policy"] == "no-referrer" and page.headers["Cache-Control"] == "no-store"
    texts = [page.text, top.ask("/").text]
    for name in ("top.js", "top.css", "enter.js", "xterm.css"):
        answer = top.ask(f"/static/{name}", Cookie=cookie)
        assert answer.status == 200
        texts.append(answer.text)
    assert not any("//fonts." in text or 'src="http' in text or 'href="http' in text for text in texts)
    assert top.ask("/static/textual.js", Cookie=cookie).status == 200
    assert top.ask("/static/mono.ttf", Cookie=cookie).headers["Content-Type"] == "font/ttf"


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e%2fserver.py", "/nothing"])
def test_no_other_file_is_served(top: WebTop, path: str) -> None:
    answer = top.ask(path)
    assert answer.status == 404 and "Content-Security-Policy" in answer.headers


def test_no_secret_is_in_a_command_line_or_an_environment(top: WebTop) -> None:
    cookie = top.enter()
    with top.look(cookie) as socket:
        read_until(socket, "rl-math")
        secrets = [top.invitation.encode(), cookie.partition("=")[2].encode()]
        for process in (top.process.pid, *list_viewers(top)):
            told = Path(f"/proc/{process}/cmdline").read_bytes() + Path(f"/proc/{process}/environ").read_bytes()
            assert not any(secret in told for secret in secrets)


def test_so_many_browsers_may_look_and_no_more(top: WebTop, wait_until: Callable[..., Any]) -> None:
    from overspan.tui.web.server import VIEWERS

    cookie = top.enter()
    wait_until(lambda: not list_viewers(top), 20)
    sockets = []
    try:
        for _ in range(VIEWERS):
            opened = top.look(cookie)
            sockets.append((opened, opened.__enter__()))
        with pytest.raises(websocket.WebSocketBadStatusException, match="503"), top.look(cookie):
            pass
    finally:
        for opened, _ in sockets:
            opened.__exit__(None, None, None)
    wait_until(lambda: not list_viewers(top), 60)


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_a_viewer_ends_with_the_server(tmp_path: Path, wait_until: Callable[..., Any], how: str) -> None:
    environment = {**os.environ, "SPAN_STATE_DIR": str(tmp_path / "state")}
    with open_web(environment, "--demo") as web, web.look(web.enter()) as socket:
        read_until(socket, "rl-math")
        (viewer,) = list_viewers(web)
        getattr(web.process, how)()
        web.process.wait(20)
        wait_until(lambda: not Path(f"/proc/{viewer}/cmdline").exists(), 20)


def test_wrong_invitations_are_slowed_down(tmp_path: Path) -> None:
    with open_web({**os.environ, "SPAN_STATE_DIR": str(tmp_path / "state")}, "--demo") as web:
        answers = [web.ask("/session", {"invitation": "wrong"}, Origin=web.origin) for _ in range(6)]
        assert [answer.status for answer in answers] == [403] * 5 + [429]
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 10
        assert web.ask("/session", {"invitation": web.invitation}, Origin=web.origin).status == 429


def test_an_address_that_cannot_be_had_is_said(span: Any) -> None:
    for address, word in (("nonsense", "is no [HOST:]PORT"), ("127.0.0.1:99999", "is no [HOST:]PORT")):
        answer = span.run("top", "--web", address, check=False)
        assert (answer.returncode, word in answer.stderr) == (2, True)
    with open_web(span.environment, "--demo") as web:
        answer = span.run("top", "--web", str(web.port), check=False)
        assert answer.returncode and "in use" in answer.stderr and isinstance(answer, subprocess.CompletedProcess)
