"""Whose turn it is in the supervisor's loop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.local import supervisor as supervisor_module
from overspan.bridge.runtime.local.supervisor import LOOK_SECONDS, Supervisor


class NoForker:
    """Forks nothing."""

    def spawn(self, launch: object) -> Shim:
        raise AssertionError(launch)


class FakeRun:
    """A run that counts its turns."""

    def __init__(self, directory: RunDirectory, services: object, now: float) -> None:
        self.nodes_folder = f"{directory.path}/nodes"
        self.done = False
        self.due: float | None = None
        self.turns: list[tuple[float, int]] = []
        self.moves: list[tuple[float, float]] = []

    def advance(self, ended: list[Shim], now: float) -> None:
        self.turns.append((now, len(ended)))

    def check(self) -> None:
        pass

    def move_clock(self, seconds: float, now: float) -> None:
        self.moves.append((seconds, now))

    def wake_at(self, now: float) -> float | None:
        return self.due

    def close(self) -> None:
        pass


def test_a_run_has_a_turn_when_it_has_news_or_is_due_and_all_have_one_when_there_may_be_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "SupervisedLaunch", FakeRun)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        host = Supervisor(str(tmp_path), lock, NoForker())  # type: ignore[arg-type]
        runs: list[FakeRun] = []
        for number in (7, 8):
            host._open((f"/runs/{number}", 0), 10.0)
            runs.append(host._runs[f"/runs/{number}", 0])  # type: ignore[arg-type]
        first, second = runs
        second.due = 10.5
        host._advance_launches([], 10.0, all_launches=False)
        assert (first.turns, second.turns) == ([(10.0, 0)], [(10.0, 0)])
        host._advance_launches([Shim(first.nodes_folder, "key", 0, None)], 10.1, all_launches=False)
        assert (first.turns[1:], second.turns[1:]) == ([(10.1, 1)], [])
        second.due = None
        host._advance_launches([], 10.5, all_launches=False)
        host._advance_launches([], 10.6, all_launches=False)
        assert (first.turns[2:], second.turns[1:]) == ([], [(10.5, 0)])
        host._advance_launches([], 10.7, all_launches=True)
        assert (first.turns[2:], second.turns[2:]) == ([(10.7, 0)], [(10.7, 0)])
        assert host._timeout(10.9) == pytest.approx(LOOK_SECONDS - 0.2)
        # A clock that was set back keeps nobody waiting.
        assert host._timeout(1.0) == LOOK_SECONDS
        first.done = True
        host._advance_launches([], 10.8, all_launches=True)
        assert list(host._runs) == list(host._due) == [("/runs/8", 0)]
    finally:
        os.close(lock)


def test_an_inbox_that_was_begun_anew_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a daemon that did not find this supervisor, which had not yet taken its lock."""
    monkeypatch.setattr(supervisor_module, "SupervisedLaunch", FakeRun)
    inbox = tmp_path / "inbox.jsonl"
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)

    def leave(*numbers: int) -> None:
        inbox.write_text("".join(f'{{"run": "/runs/{number}", "launch": 0}}\n' for number in numbers))

    def served() -> list[str]:
        host._read_inbox(10.0)
        return [name for name, _ in host._runs]

    try:
        host = Supervisor(str(tmp_path), lock, NoForker())  # type: ignore[arg-type]
        leave(1, 2, 3)
        assert served() == ["/runs/1", "/runs/2", "/runs/3"]
        leave(3, 4)
        assert served()[3:] == ["/runs/4"]
        leave(4, 5, 6, 7)
        assert served()[4:] == ["/runs/5", "/runs/6", "/runs/7"]
        leave(4, 5, 6, 7, 8)
        assert served()[7:] == ["/runs/8"]
        # By its last line it is as before.
        leave(4, 5, 9, 7, 8)
        assert served()[8:] == ["/runs/9"]
        leave()
        assert len(served()) == 9
    finally:
        os.close(lock)
