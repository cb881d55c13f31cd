"""The watch of a namespace's pods, and what happens to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Key

from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.api.watch import PodWatch, WatchTimes
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Denied, OverspanError, Unreachable

QUICK = WatchTimes(page=2, first=0.01, longest=0.05)
SELECTOR = "overspan.io/installation=abc"
LIST, WATCH = "list", "watch"


def make_pod(api: KubernetesApi, name: str, token: str = "abc-1-0", **metadata: Any) -> None:
    """A pod of a launch."""
    labels = {"overspan.io/installation": "abc", "overspan.io/launch": token}
    document = {"metadata": {"name": name, "labels": labels, **metadata}, "spec": {"containers": [{"name": "main"}]}}
    api.objects.create(Key("", "pods", "default"), document)


def change_labels(api: KubernetesApi, name: str, labels: Mapping[str, str]) -> None:
    """Change labels of a pod."""
    key = Key("", "pods", "default", name)

    def change(pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], **labels}}}

    api.objects.replace(key, change)


def count(api: KubernetesApi, kind: str) -> int:
    """Lists or watches of pods so far; a list of several parts counts once."""
    asked = [one for one in list(api.requests) if one.path.endswith("/pods")]
    if kind == WATCH:
        return sum("watch" in one.query for one in asked)
    return sum("watch" not in one.query and "continue" not in one.query for one in asked)


class Watching:
    """A watch, and waits for what it sees."""

    def __init__(self, watch: PodWatch) -> None:
        self.watch = watch

    async def until(self, accept: Callable[[], Any], what: str = "") -> None:
        """Wait on the watch's own news; AssertionError after a minute."""
        try:
            async with asyncio.timeout(60):
                while not accept():
                    await self.watch.changed.wait()
                    self.watch.changed.clear()
        except TimeoutError:
            raise AssertionError(f"{what or accept}: {self.watch.pods} {self.watch.trouble}") from None

    async def until_open(self, api: KubernetesApi, number: int) -> None:
        """Wait until so many watches were begun."""
        async with asyncio.timeout(60):
            while api.streams.opened < number:
                await asyncio.sleep(0.001)

    def names(self, token: str = "abc-1-0") -> set[str]:
        """The names of a launch's pods."""
        return set(self.watch.of(token))


@asynccontextmanager
async def watching(connection: Connection, times: WatchTimes = QUICK) -> AsyncIterator[Watching]:
    watch = PodWatch(connection, "default", SELECTOR, times)
    watch.start()
    try:
        yield Watching(watch)
    finally:
        await watch.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_what_was_there_and_what_comes(api: KubernetesApi, connection: Connection) -> None:
    for number in range(5):
        make_pod(api, f"pod-{number}")
    make_pod(api, "foreign", labels={"overspan.io/installation": "other"})
    held = api.hold("GET", "pods")

    async def test() -> None:
        async with watching(connection) as seen:
            assert not seen.watch.fresh
            held.free.set()
            await seen.until(lambda: seen.watch.fresh)
            assert seen.names() == {f"pod-{number}" for number in range(5)}
            assert seen.watch.take_news() == {"abc-1-0"}
            make_pod(api, "later", "abc-2-0")
            await seen.until(lambda: seen.names("abc-2-0"))
            assert seen.watch.take_news() == {"abc-2-0"}
            api.pods.bind("later", "node-7", "10.1.2.3")
            await seen.until(lambda: seen.watch.of("abc-2-0")["later"].node == "node-7")
            api.objects.delete(Key("", "pods", "default", "later"), {"gracePeriodSeconds": 0})
            await seen.until(lambda: seen.watch.gone("abc-2-0"))
            assert seen.names("abc-2-0") == set()
            assert [record.node for record in seen.watch.gone("abc-2-0")] == ["node-7"]
            seen.watch.forget("abc-2-0")
            assert seen.watch.gone("abc-2-0") == ()
            assert seen.watch.tokens() == {"abc-1-0"}
        # Three parts of one list, and one watch: whatever happens later costs no request.
        assert (count(api, LIST), count(api, WATCH)) == (1, 1)

    run(test())


def test_nothing_is_news_that_the_record_does_not_have(api: KubernetesApi, connection: Connection) -> None:
    make_pod(api, "one")

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.watch.fresh)
            seen.watch.take_news()
            change_labels(api, "one", {"of": "somebody else"})
            make_pod(api, "two", "abc-2-0")
            await seen.until(lambda: seen.names("abc-2-0"))
            assert seen.watch.take_news() == {"abc-2-0"}

    run(test())


def test_410_inside_the_stream_brings_a_new_list_and_the_difference(api: KubernetesApi, connection: Connection) -> None:
    for name in ("kept", "lost", "changed"):
        make_pod(api, name)

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: len(seen.names()) == 3)
            await seen.until_open(api, 1)
            api.streams.silence()
            api.objects.delete(Key("", "pods", "default", "lost"), {})
            api.pods.bind("changed", "node-9")
            make_pod(api, "new")
            api.streams.expire()
            await seen.until(lambda: seen.names() == {"kept", "changed", "new"})
            assert [record.name for record in seen.watch.gone("abc-1-0")] == ["lost"]
            assert seen.watch.of("abc-1-0")["changed"].node == "node-9"
            assert seen.watch.trouble is None
        assert count(api, LIST) == 2

    run(test())


def test_a_watch_that_is_cut_goes_on_where_it_was(api: KubernetesApi, connection: Connection) -> None:
    make_pod(api, "one")

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.names())
            await seen.until_open(api, 1)
            api.streams.cut()
            make_pod(api, "two")
            await seen.until(lambda: len(seen.names()) == 2)
            assert seen.watch.trouble is None
        assert (count(api, LIST), count(api, WATCH)) == (1, 2)

    run(test())


def test_what_no_watch_brought_is_in_a_later_list(api: KubernetesApi, connection: Connection) -> None:
    make_pod(api, "one")

    async def test() -> None:
        async with watching(connection, replace(QUICK, relist=0.0)) as seen:
            await seen.until(lambda: seen.names())
            await seen.until_open(api, 1)
            with api.objects.changed:
                api.pods.set_status("one", {"phase": "Failed"})
                api.streams.lost.add(api.objects.version)
            make_pod(api, "two")
            await seen.until(lambda: len(seen.names()) == 2)
            assert not seen.watch.of("abc-1-0")["one"].ended, "the event was lost"
            seen.watch.take_news()
            api.streams.cut()
            await seen.until(lambda: seen.watch.of("abc-1-0")["one"].ended)
            assert seen.watch.take_news() == {"abc-1-0"}

    run(test())


def test_a_watch_without_room_for_its_thread_is_begun_by_the_next_question(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, full = threading.Thread.start, [True]

    def refuse(thread: threading.Thread) -> None:
        if full[0] and thread.name.startswith("watch "):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def test() -> None:
        launches = Launches(connection)
        for _ in range(2):
            with pytest.raises(Unreachable, match="cannot be watched: can't start new thread"):
                launches.watch_installation("default", "abc")
        full[0] = False
        seen = Watching(launches.watch_installation("default", "abc"))
        await seen.until(lambda: seen.watch.fresh)
        await launches.close()

    run(test())


def test_a_cut_in_the_middle_of_a_line_loses_nothing(api: KubernetesApi, connection: Connection) -> None:
    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.watch.fresh)
            for number in range(20):
                make_pod(api, f"pod-{number}")
                api.streams.cut()
            await seen.until(lambda: len(seen.names()) == 20)
        assert count(api, LIST) == 1

    run(test())


def test_a_watch_that_ends_by_its_time_is_begun_again(api: KubernetesApi, connection: Connection) -> None:
    async def test() -> None:
        async with watching(connection, WatchTimes(least=0, most=0, first=0.01, longest=0.01)) as seen:
            await seen.until_open(api, 3)
            make_pod(api, "one")
            await seen.until(lambda: seen.names())
        assert count(api, LIST) == 1

    run(test())


def test_bookmarks_keep_the_version_young(api: KubernetesApi, connection: Connection) -> None:
    api.streams.bookmark_seconds = 0.02

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until_open(api, 1)
            # Nothing of ours happens, much of others': the version of our list is forgotten.
            for number in range(3):
                make_pod(api, f"foreign-{number}", labels={"overspan.io/installation": "other"})
            version = api.objects.version
            async with asyncio.timeout(60):
                while seen.watch.version != str(version):
                    await asyncio.sleep(0.005)
            api.objects.compact()
            api.streams.cut()
            await seen.until_open(api, 2)
            make_pod(api, "one")
            await seen.until(lambda: seen.names())
        assert count(api, LIST) == 1

    run(test())


def test_a_list_whose_parts_expire_is_read_anew(api: KubernetesApi, connection: Connection) -> None:
    for number in range(5):
        make_pod(api, f"pod-{number}")
    held = api.hold("GET", "pods", times=1)

    async def test() -> None:
        async with watching(connection) as seen:
            assert await asyncio.to_thread(held.met.wait, 60)
            second = api.hold("GET", "pods", times=1)
            held.free.set()
            assert await asyncio.to_thread(second.met.wait, 60)
            make_pod(api, "moved-on")
            api.objects.compact()
            second.free.set()
            await seen.until(lambda: len(seen.names()) == 6 and seen.watch.trouble is None)
        assert count(api, LIST) == 2

    run(test())


def test_a_server_that_is_away(api: KubernetesApi, connection: Connection) -> None:
    make_pod(api, "one")

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.watch.fresh)
            await seen.until_open(api, 1)
            await asyncio.to_thread(api.stop)
            await seen.until(lambda: seen.watch.trouble is not None)
            assert isinstance(seen.watch.trouble, Unreachable)
            assert seen.names() == {"one"}, "unreachable is not gone"
            api.objects.delete(Key("", "pods", "default", "one"), {})
            make_pod(api, "two")
            await asyncio.to_thread(api.start)
            await seen.until(lambda: seen.watch.trouble is None and seen.names() == {"two"})
            assert [record.name for record in seen.watch.gone("abc-1-0")] == ["one"]
        assert count(api, LIST) == 1

    run(test())


def test_a_server_that_is_away_at_the_start(api: KubernetesApi, connection: Connection) -> None:
    api.stop()

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.watch.trouble)
            assert not seen.watch.fresh
            make_pod(api, "one")
            await asyncio.to_thread(api.start)
            await seen.until(lambda: seen.watch.fresh and seen.names() == {"one"})
            assert seen.watch.trouble is None

    run(test())


@pytest.mark.parametrize(("verb", "what"), [("list", "list pods"), ("watch", "follow")])
def test_a_right_that_is_missing_and_then_given(
    api: KubernetesApi, connection: Connection, verb: str, what: str
) -> None:
    api.denied = {(verb, "pods")}
    told: list[OverspanError] = []

    def hears(watch: PodWatch) -> bool:
        # A list that works takes the trouble away for a moment.
        found = watch.trouble
        told.extend([found] if found else [])
        return bool(told)

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: hears(seen.watch))
            assert isinstance(told[0], Denied) and what in told[0].message
            api.denied.clear()
            make_pod(api, "one")
            await seen.until(lambda: seen.watch.trouble is None and seen.names())

    run(test())


def test_an_overloaded_server(api: KubernetesApi, connection: Connection) -> None:
    api.refuse("GET", "pods", 429, times=2)

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.watch.fresh)

    run(test())


def test_silence_is_asked_about(api: KubernetesApi, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    settle, told = PodWatch._settle, list[str]()

    def note(watch: PodWatch, trouble: OverspanError | None) -> None:
        told.append(trouble.message if trouble else "")
        settle(watch, trouble)

    monkeypatch.setattr(PodWatch, "_settle", note)

    async def test() -> None:
        async with watching(connection, WatchTimes(silence=0.2, first=0.01, longest=0.01)) as seen:
            await seen.until_open(api, 1)
            api.streams.silence()
            await seen.until_open(api, 3)
            make_pod(api, "one")
            api.streams.silence(False)
            await seen.until(lambda: seen.names())
        # Of a slow answer to its question a watch may tell; never of silence.
        assert not [text for text in told if "silent" in text]
        assert count(api, LIST) == 1

    run(test())


def test_an_answer_that_is_not_readable(api: KubernetesApi, connection: Connection) -> None:
    api.refuse("GET", "pods", 200, "this has no items, and no version")
    held = api.hold("GET", "pods")

    async def test() -> None:
        async with watching(connection) as seen:
            make_pod(api, "one")
            await seen.until(lambda: seen.watch.trouble)
            assert not seen.watch.fresh
            held.free.set()
            await seen.until(lambda: seen.names() == {"one"} and seen.watch.trouble is None)
        assert count(api, LIST) == 2

    run(test())


def test_a_token_that_expires_while_it_is_watched(api: KubernetesApi, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("old")
    config = tmp_path / "config"
    api.write_kubeconfig(config, token="PLACE")
    text = config.read_text().replace('"token": "PLACE"', f'"tokenFile": "{tmp_path}/token"')
    config.write_text(text)
    api.tokens = {"old"}
    connection = open_connection(Settings(kubeconfig=str(config)))

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until_open(api, 1)
            (tmp_path / "token").write_text("new")
            api.tokens = {"new"}
            api.streams.cut()
            make_pod(api, "one")
            await seen.until(lambda: seen.names())
            assert seen.watch.trouble is None

    run(test())
    connection.close()


@pytest.mark.parametrize("edited", ["overspan.io/installation", "overspan.io/launch"])
@pytest.mark.parametrize("away", [False, True])
def test_a_pod_whose_labels_somebody_changes_is_there_and_has_them_again(
    api: KubernetesApi, connection: Connection, edited: str, away: bool
) -> None:
    make_pod(api, "one")

    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.names())
            labels = api.pods.get("one")["metadata"]["labels"]
            if away:
                # It learns of it by a list, as after an absence.
                api.streams.expire()
                api.objects.compact()
            change_labels(api, "one", {edited: "other"})
            api.pods.bind("one", "node-7", "10.1.2.3")
            await seen.until(lambda: seen.names() and seen.watch.of("abc-1-0")["one"].node == "node-7")
            assert not seen.watch.gone("abc-1-0")
            assert api.pods.get("one")["metadata"]["labels"].items() >= labels.items()

    run(test())


def test_close_comes_back_at_once_and_leaves_no_thread(api: KubernetesApi, connection: Connection) -> None:
    async def test() -> None:
        async with watching(connection, WatchTimes()) as seen:
            await seen.until_open(api, 1)
            (thread,) = (one for one in threading.enumerate() if one.name.startswith("watch "))
        thread.join(60)
        assert not thread.is_alive()

    run(test())
    run(test())


def test_a_burst_is_seen_whole(api: KubernetesApi, connection: Connection) -> None:
    async def test() -> None:
        async with watching(connection) as seen:
            await seen.until(lambda: seen.watch.fresh)
            for number in range(300):
                make_pod(api, f"pod-{number}", f"abc-{number % 7}-0")
            await seen.until(lambda: len(seen.watch.pods) == 300)
            assert len(seen.watch.take_news()) == 7
        assert (count(api, LIST), count(api, WATCH)) == (1, 1)

    run(test())
