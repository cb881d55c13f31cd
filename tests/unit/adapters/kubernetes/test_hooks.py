"""A command for the loss of a pod: it runs when others take the pod away, within its time, and not at other ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.bench import Bench, make_job, play
from tests.unit.adapters.kubernetes.samples import configure, read_file, render_job

from overspan.adapters.kubernetes.launches import ordering
from overspan.adapters.kubernetes.manifests.hooks import HOOK, MARK_END_WORDS, hook_seconds
from overspan.adapters.kubernetes.manifests.scripts import POD_DIR, RUN_DIR
from overspan.adapters.kubernetes.observation.projection import write_go
from overspan.bridge.model import events
from overspan.bridge.model.spec import TaskSpec

FILE = "name: one\ngrace_period: 20s\non_preemption: echo $(OVERSPAN_TASK) saved\nrun: echo\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pod").mkdir()
    (tmp_path / "run").mkdir()
    return tmp_path


def run_hook(folder: Path, command: str, seconds: int = 60, path: str = "") -> None:
    """Run it as the kubelet does, with its folders elsewhere; `path` is looked at before PATH."""
    text = HOOK.replace(POD_DIR, str(folder / "pod")).replace(RUN_DIR, str(folder / "run"))
    text = text.replace("/proc/1/fd/1", str(folder / "log"))
    words = ["/bin/sh", "-c", text, "overspan", command, str(seconds)]
    environment = {**os.environ, "PATH": ":".join(filter(None, (path, os.environ["PATH"])))}
    with subprocess.Popen(words, env=environment, start_new_session=True) as process:
        try:
            assert process.wait(120) == 0
        finally:
            # What waited for the end of its time.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_it_runs_in_a_pod_that_others_take_away(folder: Path) -> None:
    (folder / "pod" / "go").write_text(write_go(time.time()))
    run_hook(folder, "echo saved; echo too >&2")
    assert (folder / "log").read_text() == "saved\ntoo\n"


@pytest.mark.parametrize("go", ["", write_go(1.0, 2.0)], ids=["not begun", "marked"])
def test_it_does_not_run_before_the_start_nor_at_an_end_by_overspan(folder: Path, go: str) -> None:
    (folder / "pod" / "go").write_text(go)
    run_hook(folder, f"touch {folder}/saved")
    assert not (folder / "saved").exists()


def test_it_does_not_run_in_a_pod_that_was_told_of_its_end(folder: Path) -> None:
    (folder / "pod" / "go").write_text(write_go(1.0))
    words = [word.replace(RUN_DIR, str(folder / "run")) for word in MARK_END_WORDS]
    subprocess.run(words, check=True)
    run_hook(folder, f"touch {folder}/saved")
    assert not (folder / "saved").exists()


def test_it_is_killed_when_its_time_is_over(folder: Path) -> None:
    (folder / "pod" / "go").write_text(write_go(1.0))
    sleep = shutil.which("sleep")
    # Its time goes by when it has begun.
    (folder / "bin").mkdir()
    (folder / "bin" / "sleep").write_text(
        f'#!/bin/sh\necho "$1" >>{folder}/slept\nuntil [ -e {folder}/begun ]; do {sleep} 0.05; done\n'
    )
    (folder / "bin" / "sleep").chmod(0o755)
    endless = f"trap '' TERM; touch {folder}/begun; while :; do {sleep} 0.1; done"
    run_hook(folder, endless, seconds=7, path=str(folder / "bin"))
    assert (folder / "begun").exists() and (folder / "slept").read_text() == "7\n"


def test_its_time_is_the_grace_but_for_the_program_s_own() -> None:
    assert hook_seconds(TaskSpec(name="a", grace_period=20)) == 18
    assert hook_seconds(TaskSpec(name="a", grace_period=0)) == 1


def test_the_kubelet_runs_it_before_term() -> None:
    (pod,) = render_job(read_file(FILE), configure()).pods
    (main,) = pod["spec"]["containers"]
    *_, text, seconds = main["lifecycle"]["preStop"]["exec"]["command"]
    assert (text, seconds) == ("echo $(OVERSPAN_TASK) saved", "18")
    (pod,) = render_job(read_file("name: one\nrun: echo\n"), configure()).pods
    assert "lifecycle" not in pod["spec"]["containers"][0]


def _told(bench: Bench) -> list[tuple[str, ...]]:
    return [one.words for one in bench.api.exec.runs if one.words == MARK_END_WORDS]


def test_a_pod_is_told_before_it_is_ended(bench: Bench) -> None:
    async def story() -> None:
        tasks = (
            TaskSpec(name="trainer", run="true", grace_period=5, on_preemption="save"),
            TaskSpec(name="server", run="true", grace_period=5),
        )
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job(*tasks))
            now = time.time()
            await bench.order(cluster, handle, events.Terminate(now, "server", 0, "cancel", now + 5))
            assert _told(bench) == []
            await bench.order(cluster, handle, events.Terminate(now, "trainer", 0, "cancel", now + 5))
            assert _told(bench) == [MARK_END_WORDS]
            asked = next(place for place, one in bench.sent("GET", "/exec") if tuple(one.words) == MARK_END_WORDS)
            (deleted,) = [place for place, one in bench.sent("DELETE", "trainer-0-a0")]
            assert asked < deleted

    play(story)


def test_where_nothing_can_be_run_in_pods_the_mark_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.api.denied.add(("create", "pods/exec"))
    monkeypatch.setattr(ordering, "MARK_SECONDS", 0.0)

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job(_saver()))
            now = time.time()
            await bench.order(cluster, handle, events.Terminate(now, "main", 0, "cancel", now + 5))
            places: dict[str, Any] = {
                method: min(place for place, one in bench.sent(method, "main-0-a0") if _is_end(method, one))
                for method in ("PATCH", "DELETE")
            }
            assert places["PATCH"] < places["DELETE"]

    play(story)


def _saver() -> TaskSpec:
    return TaskSpec(name="main", run="true", grace_period=5, on_preemption="save")


def _is_end(method: str, request: Any) -> bool:
    """Whether it is the deletion, or the mark of an end: two times."""
    if method == "DELETE":
        return True
    mark = str((request.document["metadata"].get("annotations") or {}).get("overspan.io/go") or "")
    return " " in mark
