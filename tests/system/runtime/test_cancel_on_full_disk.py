"""The job that fills the disk is the one to end: cancels and signals reach it, and the record follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.system.conftest import Span
from tests.system.runtime.disks import fill

from overspan.bridge.runtime.core.live_processes import find_live_processes

if TYPE_CHECKING:
    from tests.waiting import WaitUntil

WORK = """
trap 'echo asked >> {name}.asked; exit 0' TERM
trap 'echo told >> {name}.told' USR1
echo ran > {name}.ran
while :; do sleep 0.05; done
"""


def test_jobs_on_a_full_disk_get_their_signals_and_their_end(
    tmp_path: Path, wait_until: WaitUntil, small_disk: Callable[..., None]
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)

    def run(folder: str) -> None:
        span = Span(tmp_path, wait_until)
        filler = state / "filler"
        try:
            told, group = (span.wrap(WORK.format(name=name), "-J", name, "-o", "/dev/null") for name in ("a", "b"))
            for job, name in ((told, "a"), (group, "b")):
                span.until(job, "RUNNING")
                wait_until(lambda name=name: (tmp_path / f"{name}.ran").exists(), 30, "the work")  # type: ignore[misc]
            filler = fill(state)
            for _ in range(3):
                span.run("scancel", "-s", "USR1", "-b", str(told))
            wait_until(lambda: (tmp_path / "a.told").exists(), 30, "the signal")
            span.run("scancel", str(group))
            wait_until(lambda: (tmp_path / "b.asked").exists(), 30, "TERM")
            wait_until(lambda: not any(find_live_processes(f"{state}/clusters/local/runs/{group}")[1:]), 30, "its end")
            filler.unlink()
            assert span.until(group, "CANCELLED", timeout=120)["exit_code"] == 0
            assert (tmp_path / "b.asked").read_text() == "asked\n"
            assert span.job(told)["state"] == "RUNNING"
        finally:
            filler.unlink(missing_ok=True)
            span.close()

    small_disk(run, "size=12m,mode=700", str(state))
