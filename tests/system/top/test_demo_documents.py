"""The demonstration answers with the documents of a real daemon: the same keys, with values of the same kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.system.checkpoint_groups import write_watch

from overspan.bridge.client import Client
from overspan.tui.daemon.source import Source
from overspan.tui.demo.source import DemoSource

GROUP = """
name: rl
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {cpus: 0.1}
run: until [ -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.05; done
---
name: rollout
resources: {cpus: 0.1}
run: sleep 600
"""
POOL = "pool: {workers: 1}\nresources: {cpus: 1}\n"
NIGHTLY = "name: nightly\ncron: 0 3 * * *\nrun: 'true'\n"
MAPS = ("options", "fields", "states", "values")
"""Keys whose values are of no fixed shape."""


def describe_shape(value: Any, path: str = "") -> dict[str, set[str]]:
    """The kinds of value at each path of a document; numbers are one kind."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        found = {path: {"mapping"}}
        for key, item in value.items() if path.rpartition("/")[2] not in MAPS else ():
            found |= describe_shape(item, f"{path}/{key}")
        return found
    if isinstance(value, (list, tuple)):
        found = {path: {"list"}}
        for item in value:
            for place, kinds in describe_shape(item, f"{path}[]").items():
                found.setdefault(place, set()).update(kinds)
        return found
    if value is None:
        return {path: set()}
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {path: {"number" if is_number else type(value).__name__}}


def list_missing(shape: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> list[str]:
    """The keys that only the other document has, where this one has something in the place that holds them."""
    holders = {path: path.removesuffix("[]") if path.endswith("[]") else path.rpartition("/")[0] for path in other}
    return [path for path, holder in holders.items() if path not in shape and "mapping" in shape.get(holder, ())]


def check_same(real: Any, shown: Any) -> None:
    """Fail where one has a key that the other lacks, or a value of another kind; None fits any."""
    here, there = describe_shape(real), describe_shape(shown)
    lacks, more = list_missing(there, here), list_missing(here, there)
    assert not lacks and not more, f"the demonstration lacks {lacks}, and has {more} that no daemon tells"
    for path in here.keys() & there.keys():
        kinds, others = here[path], there[path]
        assert not kinds or not others or kinds & others, f"{path}: {kinds} of the daemon's, {others} here"


def find_ref(source: Source, wanted: Callable[[Any], bool]) -> str:
    """The id of a job whose row is as wanted."""
    return next(str(row.array_id or row.id) for row in source.queue_changes().rows if wanted(row))


def test_documents_have_the_keys_of_a_real_daemons(span: Any, wait_until: Callable[..., Any]) -> None:
    demo = DemoSource()
    group = str(span.submit(GROUP))
    array = str(span.wrap("sleep 600", "-n1", "--mem=20M", "--array=0-3%1"))
    failed = str(span.wrap("echo lost >&2; exit 3", "-n1", "--mem=20M"))
    span.submit(write_watch("save 1; save 2"))
    (span.folder / "nightly.yaml").write_text(NIGHTLY)
    span.run("submit", str(span.folder / "nightly.yaml"))
    (span.folder / "pool.yaml").write_text(POOL)
    span.run("pool", "apply", "-p", "warm", str(span.folder / "pool.yaml"))
    with Client(environment=span.environment, autostart=False) as client:
        wait_until(lambda: client.show(group)["state"] == "RUNNING", 30)
        wait_until(lambda: client.show(failed)["state"] == "FAILED", 30)
        wait_until(lambda: any(row.array_index is not None for row in client.queue_changes().rows), 30)
        shown = [
            (group, find_ref(demo, lambda row: row.group == "rl-math")),
            (array, find_ref(demo, lambda row: row.array_waiting)),
            (failed, find_ref(demo, lambda row: row.state == "FAILED" and row.array_id is None)),
        ]
        for real, pretended in shown:
            check_same(client.show(real), demo.show(pretended))
            assert [type(each) for each in client.timeline(real)[:1]] == [
                type(each) for each in demo.timeline(pretended)[:1]
            ]
            check_same(client.timeline(real), demo.timeline(pretended))
            assert client.script(real) and demo.script(pretended)
        for real, pretended in (shown[0], shown[2]):
            check_same(client.streams(real), demo.streams(pretended))
            check_same(client.streams(real, times=True), demo.streams(pretended, times=True))
        check_same(client.queue_changes(), demo.queue_changes())
        check_same(client.history(), demo.history())
        check_same(client.nodes(), demo.nodes())
        check_same(client.clusters(), demo.clusters())
        check_same(client.schedules(), demo.schedules())
        span.wait_until(lambda: client.pools()[0]["state"] == "READY", 30, "a worker")
        check_same(client.pools(), demo.pools())
        span.wait_until(lambda: client.watches() and client.watches()[0]["best_score"], 30, "a score")
        check_same(client.watches(), demo.watches())
        check_same(client.evals(str(client.watches()[0]["job"])), demo.evals(str(demo.watches()[0]["job"])))
        check_same(client.ping(), demo.ping())
        check_same(client.check("local"), demo.check("local"))
        check_same(client.login("local"), demo.login("local"))
    span.run("scancel", group, array)
    span.run("pool", "delete", "warm", "--cancel")
