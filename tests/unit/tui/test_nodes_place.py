"""The place of nodes: what is asked and when, and what its lines lead to."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import HOSTILE, Lab, cluster, make_lab, node
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import Input

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.model.errors import Unreachable
from overspan.tui.app import TopApp
from overspan.tui.nodes.lines import NodeLine
from overspan.tui.places.nodes import NodesPlace


def find_names(place: NodesPlace) -> list[str]:
    return [line.key.node or f"{line.key.cluster}:{line.key.partition}" for line in place.table.lines]


def find_line(place: NodesPlace, name: str) -> NodeLine:
    lines: Sequence[NodeLine] = place.table.lines
    return next(line for line in lines if name in (line.key.node, line.key.cluster))


async def open_nodes(app: TopApp, pilot: Pilot[int], count: int) -> NodesPlace:
    await pilot.press("4")
    place = app.query_one(NodesPlace)
    await settle(pilot, lambda: len(place.table.lines) == count)
    return place


def test_all_clusters_are_asked_but_one_that_is_idle() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        assert find_names(place) == ["leo:gpu", "n1", "n2", "n3", "leo:cpu", "c1", "kube:", "old:"]
        await settle(pilot, lambda: "no route" in read_frame(place))
        assert {about for name, about in source.asked if name == "nodes"} == {("leo",), ("kube",)}
        place.table.move_to(find_line(place, "old").key)
        source.node_document["nodes"].append(node("o1", "old"))
        await pilot.press("enter")
        await settle(pilot, lambda: "o1" in find_names(place))

    play(source, story)


def test_nothing_is_asked_out_of_sight() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        assert source.asked == []
        place = await open_nodes(app, pilot, 8)
        await pilot.press("1")
        asked = len(source.asked)
        place._next_ask = 0.0
        place._tick()
        await pilot.pause(0.05)
        assert len(source.asked) == asked
        await pilot.press("4")
        await settle(pilot, lambda: len(source.asked) > asked)

    play(source, story)


def test_a_cluster_that_falls_silent_keeps_its_nodes_dimmed() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        await pilot.press("down")
        source.silent["leo"] = "ssh timed out"
        await pilot.press("r")
        await settle(pilot, lambda: "old: ssh timed out" in read_frame(place))
        assert find_names(place)[:3] == ["leo:gpu", "n1", "n2"]
        assert place.table.current == find_line(place, "n1")
        assert find_line(place, "n1").cluster.old

    play(source, story, size=(140, 24))


def test_a_slow_cluster_delays_no_other_and_is_not_asked_twice() -> None:
    source = make_lab()
    gate = source.gates["kube"] = threading.Event()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        await pilot.press("r", "r")
        await settle(pilot, lambda: source.asked.count(("nodes", ("leo",))) >= 2)
        assert source.asked.count(("nodes", ("kube",))) == 1
        await settle(pilot, lambda: "asking..." in read_frame(place))
        gate.set()
        await settle(pilot, lambda: "no route" in read_frame(place))

    play(source, story)
    gate.set()


def test_a_daemon_that_goes_leaves_what_was_known() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        source.lose(Unreachable("the daemon is not running"))
        await pilot.press("r")
        await settle(pilot, lambda: "old: the daemon is not running" in read_frame(place))
        assert len(place.table.lines) == 8
        source.lost = None
        await pilot.press("r")
        await settle(pilot, lambda: "not running" not in read_frame(place))

    play(source, story)


def test_a_daemon_that_never_answers_is_no_empty_lab() -> None:
    source = Lab()
    source.lose(Unreachable("the daemon is not running"))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        place = app.query_one(NodesPlace)
        await settle(pilot, lambda: "no answer: the daemon is not running" in read_frame(place))
        assert "no clusters" not in read_frame(place)

    play(source, story)


def test_enter_shows_the_jobs_of_a_node_in_the_queue() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        place.table.move_to(find_line(place, "c1").key)
        assert find_line(place, "c1").jobs == 1
        await pilot.press("enter")
        await settle(pilot, lambda: app.place is app.queue)
        await settle(pilot, lambda: any(box.value == "node:c1 cluster:leo" for box in app.queue.query(Input)))

    play(source, story)


def test_partitions_fold_and_the_cursor_stays_on_the_head() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        await pilot.press("down", "down", "left")
        assert find_names(place)[:2] == ["leo:gpu", "leo:cpu"]
        assert place.table.current == place.table.lines[0]
        await pilot.press("right")
        assert len(place.table.lines) == 8
        await pilot.press("asterisk")
        assert len(place.table.lines) == 4
        await pilot.press("enter")
        assert len(place.table.lines) == 7

    play(source, story)


def test_the_filter_narrows_and_escape_drops_it() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 8)
        await pilot.press("slash", *"drain")
        await settle(pilot, lambda: find_names(place) == ["leo:gpu", "n3"])
        await pilot.press("enter", "s", "s")
        assert place.sort == "cpus" and find_names(place) == ["leo:gpu", "n3"]
        await pilot.press("escape")
        assert len(place.table.lines) == 8
        await pilot.press("slash", *"nothing", "enter")
        await settle(pilot, lambda: "nothing matches the filter" in read_frame(place))
        await pilot.press("escape", "escape")
        assert app.place is app.queue

    play(source, story)


def test_hostile_names_reach_no_widget() -> None:
    source = make_lab()
    source.cluster_list = [cluster("leo"), cluster(HOSTILE, state="stale", message=HOSTILE)]
    source.node_document["nodes"] = [node(HOSTILE, reason=HOSTILE, state=HOSTILE, partition=HOSTILE)]
    source.silent[HOSTILE] = HOSTILE

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_nodes(app, pilot, 3)
        for _ in range(3):
            await pilot.press("down")
            await settle(pilot, lambda: "[bold]" in read_frame(place))
            assert not UNSAFE.search(read_frame(place).replace("\n", ""))

    play(source, story)
