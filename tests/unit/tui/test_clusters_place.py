"""The place of clusters: contact and trouble, a check in the background, the jobs of one."""

from __future__ import annotations

import threading

from tests.unit.tui.fake_source import NOW
from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import Lab, cluster, make_lab
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import Input

from overspan.bridge.model.errors import Unreachable
from overspan.tui.app import TopApp
from overspan.tui.clusters.check import CheckScreen
from overspan.tui.places.clusters import ClustersPlace


async def open_clusters(app: TopApp, pilot: Pilot[int], count: int) -> ClustersPlace:
    await pilot.press("6")
    place = app.query_one(ClustersPlace)
    await settle(pilot, lambda: len(place.table.lines) == count)
    return place


def read_screen(app: TopApp) -> str:
    return read_frame(app.screen)


def test_looking_asks_no_cluster_and_shows_trouble_in_words() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_clusters(app, pilot, 3)
        assert source.count("nodes") == 0
        text = read_frame(place)
        assert "in trouble: kube" in text and "for 2:1" in text
        source.cluster_list = [cluster("leo", default=True), cluster("kube", "kubernetes")]
        await pilot.press("r")
        await settle(pilot, lambda: "in trouble" not in read_frame(place))

    play(source, story)


def test_enter_checks_in_the_background_and_escape_closes() -> None:
    source = make_lab()
    gate = source.gates["check"] = threading.Event()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_clusters(app, pilot, 3)
        await pilot.press("enter")
        await settle(pilot, lambda: "Check of leo: checking..." in read_screen(app))
        gate.set()
        await settle(pilot, lambda: "1 of 2 checks failed" in read_screen(app))
        await settle(pilot, lambda: "ask the site for bwrap" in read_screen(app))
        await settle(pilot, lambda: "span login leo" in read_screen(app))
        source.findings["leo"] = [{"what": "Slurm", "works": True, "seen": "24.05", "remedy": ""}]
        await pilot.press("r")
        await settle(pilot, lambda: "1 check passed" in read_screen(app))
        await pilot.press("escape")
        await settle(pilot, lambda: not isinstance(app.screen, CheckScreen))

    play(source, story)


def test_a_check_that_ends_after_its_screen_was_closed_shows_nowhere() -> None:
    source = make_lab()
    slow = source.gates["leo"] = threading.Event()
    source.findings["kube"] = [{"what": "api", "works": True, "seen": "1.31", "remedy": ""}]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_clusters(app, pilot, 3)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, CheckScreen) and source.count("check") == 1)
        await pilot.press("escape", "down", "enter")
        await settle(pilot, lambda: "Check of kube" in read_screen(app))
        slow.set()
        await settle(pilot, lambda: "1 check passed" in read_screen(app) and "1.31" in read_screen(app))
        assert "user namespaces" not in read_screen(app)

    play(source, story)


def test_a_check_that_cannot_be_made_says_why() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_clusters(app, pilot, 3)
        await pilot.press("down", "enter")
        await settle(pilot, lambda: "the cluster kube cannot be checked" in read_screen(app))
        await settle(pilot, lambda: "name another one" in read_screen(app))
        source.lose(Unreachable("the daemon is not running", remedy="span daemon"))
        await pilot.press("r")
        await settle(pilot, lambda: "the daemon is not running" in read_screen(app))

    play(source, story)


def test_a_lost_daemon_leaves_the_clusters_with_their_age() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_clusters(app, pilot, 3)
        source.lose(Unreachable("the daemon is not running"))
        await pilot.press("r")
        await settle(pilot, lambda: "old: the daemon is not running" in read_frame(place))
        assert len(place.table.lines) == 3

    play(source, story)


def test_the_jobs_of_a_cluster_are_in_the_queue() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_clusters(app, pilot, 3)
        await pilot.press("down", "J")
        await settle(pilot, lambda: app.place is app.queue)
        await settle(pilot, lambda: any(box.value == "cluster:kube" for box in app.queue.query(Input)))

    play(make_lab(), story)


def test_one_cluster_that_is_displaced_says_what_to_do() -> None:
    source = Lab()
    words = "jobs of leo are at slurm a, and the configuration says slurm b now; put the entry leo back"
    source.cluster_list = [cluster("leo", state="displaced", message=words, since=NOW)]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_clusters(app, pilot, 1)
        assert "put the entry leo back" in " ".join(read_frame(place).split())

    play(source, story, size=(80, 24))
