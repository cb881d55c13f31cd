"""The queue of a real daemon with two clusters: trees, changes while one looks, filter, order, marks, the palette,
the options of squeue, and the same printed once."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
from collections.abc import Awaitable, Callable

import pytest
from tests.system.conftest import Span
from tests.system.top.terminal import open_terminal
from tests.system.top.top_stories import GROUP
from tests.unit.tui.frames import read_frame
from tests.unit.tui.queue_frames import read_screen
from tests.unit.tui.stories import settle
from textual.pilot import Pilot

from overspan import Client
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.top import OPTIONS, read_options
from overspan.bridge.cli.slurm.squeue import attach_values
from overspan.bridge.model.options.getopt import parse
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.places.nodes import NodesPlace

pytestmark = pytest.mark.shared_daemon
TWO = "clusters:\n  local: {kind: local, cpus: 8, memory: 8G}\n  lab: {kind: local, cpus: 8, memory: 8G}\n"
ME = pwd.getpwuid(os.getuid()).pw_name
Story = Callable[[TopApp, Pilot[int]], Awaitable[None]]


@pytest.fixture(scope="module", autouse=True)
def two_clusters(shared_span: Span) -> None:
    """Both on this machine; the daemon is not there yet."""
    shared_span.config.write_text(TWO)


def play(span: Span, story: Story, *words: str) -> None:
    """Run a story as `span top WORDS` would begin it."""
    call = Invocation("top", words, span.environment)
    options = read_options(call, parse(attach_values(words), OPTIONS), call.client) if words else TopOptions()

    async def run() -> None:
        app = TopApp(lambda: Client(environment=span.environment), options)
        async with app.run_test(size=(120, 30)) as pilot:
            await story(app, pilot)

    asyncio.run(run())


def hold(span: Span, name: str, cluster: str = "local") -> str:
    """A job that waits; gives its id."""
    return span.run("sbatch", "--parsable", "-H", "-J", name, "-M", cluster, "--wrap", "true").stdout.partition(";")[0]


async def run_command(span: Span, *words: str) -> None:
    """A command that somebody gives meanwhile, elsewhere."""
    await asyncio.to_thread(span.run, *words)


def list_lines(app: TopApp) -> list[tuple[str, str]]:
    """The lines: what the first column shows without its tree, and the state."""
    return [(line.node.ref, line.node.row.state) for line in app.queue.table.lines]


def tally(app: TopApp, ref: str) -> dict[str, int]:
    """How many members of a group or an array are how."""
    return next(dict(line.node.tally) for line in app.queue.table.lines if line.node.ref == ref)


def go_to(app: TopApp, ref: str) -> None:
    """Put the cursor on a line."""
    assert app.queue.table.move_to(next(line.key for line in app.queue.table.lines if line.node.ref == ref))


def find_cursor(app: TopApp) -> str:
    """The line that has it."""
    line = app.queue.table.current
    return "" if line is None else line.node.ref


def test_groups_and_arrays_unfold_and_change_while_one_looks(span: Span) -> None:
    group = str(span.submit(GROUP, "-M", "lab"))
    array = str(span.wrap("sleep 300", "--array=0-9%2", "-J", "sweep", "--cpus-per-task=1", "--mem=10M"))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: (group, "RUNNING") in list_lines(app) and (array, "RUNNING") in list_lines(app))
        await settle(pilot, lambda: tally(app, group) == {"RUNNING": 2})
        await settle(pilot, lambda: tally(app, array) == {"RUNNING": 2, "PENDING": 8})
        assert len(app.queue.table.lines) == 2
        await settle(pilot, lambda: "2 R, 8 PD" in read_screen(app) and "lab" in read_screen(app))
        go_to(app, group)
        await pilot.press("right")
        assert [ref for ref, _ in list_lines(app) if ref.startswith(f"{group}+")] == [f"{group}+0", f"{group}+1"]
        go_to(app, array)
        await pilot.press("right")
        await settle(pilot, lambda: {(f"{array}_0", "RUNNING"), (f"{array}_1", "RUNNING")} < set(list_lines(app)))
        # One element is cancelled elsewhere; the next one of the array starts, and the lines stay unfolded.
        await run_command(span, "scancel", f"{array}_0")
        await settle(pilot, lambda: (f"{array}_2", "RUNNING") in list_lines(app))
        await settle(pilot, lambda: tally(app, array) == {"CANCELLED": 1, "RUNNING": 2, "PENDING": 7})
        assert find_cursor(app) == array
        go_to(app, f"{group}+1")
        await pilot.press("left")
        assert find_cursor(app) == group
        await pilot.press("left")
        assert f"{group}+1" not in [ref for ref, _ in list_lines(app)]
        await run_command(span, "scancel", group)
        await settle(pilot, lambda: (group, "CANCELLED") in list_lines(app))
        assert find_cursor(app) == group

    play(span, story)


def test_filter_order_marks_and_palette(span: Span) -> None:
    held = {name: hold(span, name) for name in ("alpha", "gamma", "beta")}
    there = hold(span, "delta", "lab")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        table = app.queue.table
        await settle(pilot, lambda: len(table.lines) == 4)
        await pilot.press("slash", *"name:a$ cluster:local", "enter")
        assert {ref for ref, _ in list_lines(app)} == set(held.values())
        go_to(app, held["gamma"])
        await pilot.press("space", "s")
        await settle(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("down", "down", "enter")
        await settle(pilot, lambda: [ref for ref, _ in list_lines(app)] == [held[name] for name in sorted(held)])
        await pilot.press("S")
        falling = [held[name] for name in sorted(held, reverse=True)]
        await settle(pilot, lambda: [ref for ref, _ in list_lines(app)] == falling)
        # What is marked stays so, whatever comes, goes, and is shown.
        await run_command(span, "scancel", held["alpha"])
        await settle(pilot, lambda: (held["alpha"], "CANCELLED") in list_lines(app))
        assert [line.node.ref for line in table.marked] == [held["gamma"]]
        await settle(pilot, lambda: "1 marked" in read_screen(app))
        await pilot.press("colon", *"cluster lab", "enter")
        await settle(pilot, lambda: [ref for ref, _ in list_lines(app)] == [there])
        assert app.queue.filter_source == "name:a$ cluster:lab"
        await settle(pilot, lambda: "1 marked, 1 of them not shown" in read_screen(app))
        # The order is about what is marked, shown or not, and says so.
        await pilot.press("c")
        await settle(pilot, lambda: f"local:{held['gamma']} gamma" in read_screen(app))
        await settle(pilot, lambda: "not shown now" in read_screen(app))
        await pilot.press("y")
        await settle(pilot, lambda: span.job(held["gamma"])["state"] == "CANCELLED")
        assert span.job(there)["state"] == "PENDING"
        await pilot.press("colon", *"all", "enter")
        await settle(pilot, lambda: len(table.lines) == 4)
        await pilot.press("colon", *"clusters", "enter")
        await settle(pilot, lambda: app.place.name_of_place == "clusters" and "lab" in read_screen(app))

    play(span, story, "-j", ",".join([*held.values(), there]))


def test_options_of_squeue_begin_with_these_jobs_alone(span: Span) -> None:
    here, there = hold(span, "here"), hold(span, "there", "lab")
    running = str(span.submit("name: r\nresources: {cpus: 0.1}\nrun: sleep 300\n", "-M", "lab"))
    span.until(running, "RUNNING")
    partition = span.job(there)["partition"]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: list_lines(app) == [(there, "PENDING")])
        await settle(pilot, lambda: f"-u {ME}, -t PD, -M lab, -p {partition}" in read_screen(app))
        # What becomes such a job comes, and what is none any more goes.
        await run_command(span, "scontrol", "release", there)
        await settle(pilot, lambda: list_lines(app) == [])
        other = await asyncio.to_thread(hold, span, "other", "lab")
        await settle(pilot, lambda: list_lines(app) == [(other, "PENDING")])

    play(span, story, "-u", ME, "-t", "PD", "-M", "lab", "-p", partition)
    with open_terminal(["top", "-t", "PD", f"-u{ME}", "-j", here], {**span.environment, "TERM": "xterm"}) as terminal:
        shown = terminal.wait_for("here", f"-u {ME}, -t PD, -j {here}")
        assert "there" not in shown and "1 job " in shown
        terminal.press("q")
        assert terminal.wait_end() == 0


def test_nodes_of_all_clusters_with_what_is_in_use(span: Span) -> None:
    job = span.submit("name: wide\nresources: {cpus: 2, memory: 1G}\nrun: sleep 300\n", "-M", "lab")
    span.until(job, "RUNNING")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        place = app.place
        assert isinstance(place, NodesPlace)
        await settle(
            pilot, lambda: {line.cluster.name for line in place.table.lines if line.is_node} == {"lab", "local"}
        )
        await settle(pilot, lambda: [line.is_node for line in place.table.lines] == [False, True] * 2)
        shown = read_frame(place)
        # A bar of which something is full, and the numbers, of CPUs and of memory.
        assert re.search(r"lab.*[█▉▊▋▌▍▎▏]\S* 2/8 .*[█▉▊▋▌▍▎▏]\S* 1G/8G", shown), shown
        assert "Nodes: 2 of 2 take work" in shown and "/16 CPUs" in shown
        place.table.move_to(next(line.key for line in place.table.lines if line.is_node and line.cluster.name == "lab"))
        await pilot.press("enter")
        await settle(pilot, lambda: str(job) in [ref for ref, _ in list_lines(app)])
        assert app.place is app.queue and {line.node.row.cluster for line in app.queue.table.lines} == {"lab"}

    play(span, story)


def test_once_prints_the_queue_of_all_clusters(span: Span) -> None:
    group = span.submit(GROUP, "-M", "lab")
    held = hold(span, "here")
    span.until(group, "RUNNING", task="rollout")
    span.until(group, "RUNNING", task="trainer")
    head, frame, titles, *lines = span.run("top", "--once", "-j", f"{group},{held}").stdout.splitlines()
    assert head == "2 R  1 PD" and "2 jobs" in frame
    assert titles.split()[:4] == ["JOBID", "NAME", "USER", "PARTITION"]
    assert [line.split()[:3] for line in lines] == [["▸", str(group), "rl"], [held, "here", ME]]
    assert lines[0].endswith("2 R") and " lab " in lines[0] and " local " in lines[1]
    unfolded = span.run(
        "top", "--once", "-r", "-M", "lab", "-j", str(group), "--filter", "state:r", "--ascii"
    ).stdout.splitlines()
    assert [line.split()[:3] for line in unfolded[3:]] == [
        ["-", str(group), "rl"],
        ["|-", f"{group}+0", "trainer"],
        ["`-", f"{group}+1", "rollout"],
    ]
    wrong = span.run("top", "--once", "-M", "nowhere", check=False)
    assert wrong.returncode == 2 and wrong.stdout == "" and "nowhere" in wrong.stderr
