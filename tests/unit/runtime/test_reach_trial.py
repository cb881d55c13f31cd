"""The program of a trial of reach: what it finds out about a peer."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from overspan.bridge.runtime.reach.trial import CONNECTS, LISTENS, Trial, main


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def find(trial: Trial, what: str) -> dict[str, object]:
    (found,) = (each for each in trial.results if each["reach"] == what)
    return {key: found[key] for key in ("works", "address", "detail")}


def test_a_peer_that_says_the_word_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    # It is its own peer, so each port is reached and visited.
    assert main(["127.0.0.1", "word", "60", str(port)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(line["reach"], line["works"], line["port"]) for line in lines} == {
        (LISTENS, True, port),
        (CONNECTS, True, port),
    }


def test_another_program_is_not_the_peer_and_a_taken_port_is_told() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            with server.accept()[0] as visitor:
                visitor.recv(99)
                visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        other = threading.Thread(target=answer)
        other.start()
        trial = Trial("127.0.0.1", "word", 0.0)
        trial.play([port])
        other.join()
    assert find(trial, CONNECTS) == {
        "works": False,
        "address": "127.0.0.1",
        "detail": "another program answers there",
    }
    assert find(trial, LISTENS)["works"] is False and "in use" in str(find(trial, LISTENS)["detail"])


def test_what_listens_nowhere_and_has_no_name_is_not_reached() -> None:
    port = free_port()
    trial = Trial("127.0.0.1", "word", 0.0)
    trial.call(port)
    assert find(trial, CONNECTS) == {"works": False, "address": "127.0.0.1", "detail": "Connection refused"}
    nameless = Trial("nobody.invalid", "word", 0.0)
    nameless.call(port)
    assert str(find(nameless, CONNECTS)["detail"]).startswith("the name nobody.invalid leads nowhere")
