"""Pools in `span top` against a real daemon: workers that come, the jobs that they hold, a queue that grows."""

from __future__ import annotations

from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live
from tests.unit.tui.frames import read_frame

from overspan.tui.places.pools import PoolsPlace
from overspan.tui.pools.lines import PoolLineKey

POOL = "pool: {workers: 2}\nresources: {cpus: 1}\n"
JOB = "#!/bin/sh\n#SBATCH --pool=small -a 1-6 -o /dev/null\nuntil [ -e go ]; do sleep 0.1; done\n"


def test_workers_hold_jobs_and_the_queue_goes_while_one_looks(span: Span) -> None:
    """TU06: an empty place says what to do; then workers, leases and the queue, and the end of it."""

    async def story(live: LiveQueue) -> None:
        await live.pilot.press("3")
        await live.until(lambda: isinstance(live.app.place, PoolsPlace))
        place = live.app.query_one(PoolsPlace)
        await live.until(lambda: "span pool apply" in read_frame(place))
        (span.folder / "small.yaml").write_text(POOL)
        span.run("pool", "apply", "-p", "small", "small.yaml")
        (span.folder / "job.sh").write_text(JOB)
        span.run("sbatch", "job.sh")
        await live.until(lambda: [line.jobs for line in place.table.lines] == [2, 1, 1])
        await live.until(lambda: "4 wait" in place.sum_up())
        worker = place.table.lines[1]
        await live.until(lambda: str(worker.worker["jobs"][0]) in read_frame(place) and "READY" in read_frame(place))
        place.table.move_to(worker.key)
        await live.pilot.press("D", "tab", "enter")
        await live.until(lambda: "DRAINING" in read_frame(place))
        (span.folder / "go").touch()
        await live.until(lambda: worker.key not in [line.key for line in place.table.lines])
        await live.until(lambda: place.table.lines[0].jobs == 0 and "0 wait" in place.sum_up())
        assert place.table.lines[0].key == PoolLineKey("small")

    play_live(span, story, size=(120, 40))
    span.run("pool", "delete", "small", "--cancel")
