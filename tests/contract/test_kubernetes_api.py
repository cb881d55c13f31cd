"""What the Kubernetes adapter relies on in an API server, on the fake and on a real one: they behave alike."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.kubernetes_servers import (
    LAUNCH,
    SELECTOR,
    FakeServer,
    Namespace,
    RealServer,
    make_pod,
)
from tests.fakes.kubernetes_api import KubernetesApi
from tests.leaks import nothing_is_dropped
from tests.rigs.plugin import kube_namespace, kube_rig
from tests.waiting import wait_until

from overspan.adapters.contract import Node
from overspan.adapters.kubernetes.api.answers import is_quota
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.discovery import Right, may
from overspan.adapters.kubernetes.api.watch import PodWatch, WatchTimes
from overspan.adapters.kubernetes.diagnosis.checking import check_cluster
from overspan.adapters.kubernetes.observation.nodes import ask_nodes
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Denied, NotFound, Rejected, Unreachable

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped"]


@pytest.fixture(params=["fake", "real"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Namespace]:
    with contextlib.ExitStack() as stack:
        server: FakeServer | RealServer
        if request.param == "fake":
            server = FakeServer(stack.enter_context(KubernetesApi()), tmp_path)
        else:
            namespace = request.getfixturevalue("kube_namespace")
            server = RealServer(request.getfixturevalue("kube_rig"), namespace)
        stack.callback(server.connection.close)
        yield Namespace(server)


def test_a_name_is_taken_once(space: Namespace) -> None:
    body = {"metadata": {"name": "one", "labels": {"a": "b"}}, "data": {"k": "v"}}
    made = space.ask("POST", "configmaps", body)
    assert made.status == 201 and made.document["metadata"]["uid"]
    again = space.ask("POST", "configmaps", body)
    assert (again.status, again.reason) == (409, "AlreadyExists")
    assert space.ask("DELETE", "configmaps/one").status == 200
    missing = space.ask("GET", "configmaps/one")
    assert (missing.status, missing.reason) == (404, "NotFound")


def test_an_answer_may_be_no_more_than_metadata(space: Namespace) -> None:
    made = space.connection.request("POST", f"{space.base}/pods", body=make_pod("brief"), brief=True)
    assert (made.status, made.document["kind"]) == (201, "PartialObjectMetadata")
    assert made.document["metadata"]["uid"] and "spec" not in made.document
    again = space.connection.request("POST", f"{space.base}/pods", body=make_pod("brief"), brief=True)
    assert (again.status, again.reason) == (409, "AlreadyExists")


def test_the_answer_to_a_deletion_tells_what_a_change_has_to_know(space: Namespace) -> None:
    # Nobody else changes it.
    spec = {"schedulerName": "nobody"}
    kept = ["overspan.io/outcome", "other.example/one"]
    pod = space.make_pod("kept", spec=spec, metadata={"finalizers": kept})
    path, uid = f"{space.base}/pods/kept", pod["metadata"]["uid"]
    deleted = space.connection.request("DELETE", path, body={"preconditions": {"uid": uid}}, brief=True)
    known = deleted.document["metadata"]
    assert (deleted.status, known["uid"], known["finalizers"]) == (200, uid, kept)
    change = {"uid": uid, "resourceVersion": known["resourceVersion"], "finalizers": None}
    form = "application/merge-patch+json"
    changed = space.connection.request("PATCH", path, body={"metadata": change}, content_type=form, brief=True)
    assert changed.status == 200
    assert space.ask("GET", "pods/kept").status == 404


def test_names_are_checked(space: Namespace) -> None:
    answer = space.ask("POST", "pods", make_pod("Not_a_name"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "Not_a_name" in answer.message


def test_a_pods_spec_is_fixed(space: Namespace) -> None:
    space.make_pod("fixed", spec={"nodeSelector": {"none": "such"}})
    answer = space.ask("PATCH", "pods/fixed", {"spec": {"restartPolicy": "Always"}})
    assert answer.status == 422


def test_deletion_of_another_uid_is_refused(space: Namespace) -> None:
    pod = space.make_pod("other", spec={"nodeSelector": {"none": "such"}})
    wrong = space.ask("DELETE", "pods/other", {"preconditions": {"uid": "another"}})
    assert (wrong.status, wrong.reason) == (409, "Conflict")
    right = space.ask("DELETE", "pods/other", {"preconditions": {"uid": pod["metadata"]["uid"]}})
    assert right.status == 200
    # No node has it: there is nothing to wait for, whatever its grace.
    assert space.ask("GET", "pods/other").status == 404


def test_a_patch_for_another_uid_or_version_is_refused(space: Namespace) -> None:
    space.ask("POST", "configmaps", {"metadata": {"name": "one"}})
    marks = {"annotations": {"a": "1"}}
    wrong = space.ask("PATCH", "configmaps/one", {"metadata": {**marks, "uid": "another"}})
    assert wrong.status == 422 and "uid" in wrong.message and "immutable" in wrong.message
    assert space.ask("PATCH", "configmaps/one", {"metadata": {**marks, "resourceVersion": "1"}}).status == 409
    assert space.ask("GET", "configmaps/one").document["metadata"].get("annotations") is None


def test_entries_are_added_to_a_config_map_of_that_uid_and_no_other(space: Namespace) -> None:
    made = space.ask("POST", "configmaps", {"metadata": {"name": "one"}, "data": {"plan.json": "{}"}})
    uid, calls = made.document["metadata"]["uid"], Calls(space.connection, space.base.rpartition("/")[2])

    async def story() -> None:
        await calls.add_data("one", uid, {"end.group-task-0-a0": "x"})
        await calls.add_data("one", f"{uid[:-1]}x", {"another": "y"})
        await calls.add_data("none", uid, {"another": "y"})

    asyncio.run(story())
    assert space.ask("GET", "configmaps/one").document["data"] == {"plan.json": "{}", "end.group-task-0-a0": "x"}


def test_a_merge_patch_takes_away_what_is_null(space: Namespace) -> None:
    space.ask("POST", "configmaps", {"metadata": {"name": "one", "labels": {"a": "1", "b": "2"}}})
    answer = space.ask("PATCH", "configmaps/one", {"metadata": {"labels": {"a": None, "c": "3"}}})
    assert answer.document["metadata"]["labels"] == {"b": "2", "c": "3"}


def test_a_finalizer_keeps_what_is_deleted(space: Namespace) -> None:
    space.ask("POST", "configmaps", {"metadata": {"name": "kept", "finalizers": ["overspan.io/outcome"]}})
    space.ask("DELETE", "configmaps/kept")
    assert space.ask("GET", "configmaps/kept").document["metadata"]["deletionTimestamp"]
    space.ask("PATCH", "configmaps/kept", {"metadata": {"finalizers": None}})
    assert space.ask("GET", "configmaps/kept").status == 404


def test_what_an_object_owns_goes_with_it(space: Namespace) -> None:
    anchor = space.ask("POST", "configmaps", {"metadata": {"name": "anchor"}}).document["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor", "uid": anchor["uid"]}
    space.ask("POST", "secrets", {"metadata": {"name": "owned", "ownerReferences": [owner]}})
    space.ask("DELETE", "configmaps/anchor", {"propagationPolicy": "Background"})
    space.await_gone("secrets/owned")


def test_a_list_comes_in_parts(space: Namespace) -> None:
    for number in range(5):
        space.ask("POST", "configmaps", {"metadata": {"name": f"part-{number}", "labels": {"of": "list"}}})
    space.ask("POST", "configmaps", {"metadata": {"name": "part-x", "labels": {"of": "another"}}})
    first = space.ask("GET", "configmaps", labelSelector="of=list", limit=3).document
    assert [one["metadata"]["name"] for one in first["items"]] == ["part-0", "part-1", "part-2"]
    rest = space.ask(
        "GET", "configmaps", labelSelector="of=list", limit=3, **{"continue": first["metadata"]["continue"]}
    ).document
    assert [one["metadata"]["name"] for one in rest["items"]] == ["part-3", "part-4"]
    assert not rest["metadata"].get("continue")
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("a=1", ["x"]),
        ("a!=1", ["y", "z"]),
        ("a", ["x", "y"]),
        ("!a", ["z"]),
        ("a in (1,2)", ["x", "y"]),
        ("a,b=2", ["y"]),
    ],
)
def test_label_selectors(space: Namespace, selector: str, found: list[str]) -> None:
    for name, labels in {"x": {"a": "1"}, "y": {"a": "2", "b": "2"}, "z": {"b": "2"}}.items():
        space.ask("POST", "configmaps", {"metadata": {"name": name, "labels": {**labels, "mine": "1"}}})
    answer = space.ask("GET", "configmaps", labelSelector=f"mine,{selector}")
    assert [one["metadata"]["name"] for one in answer.document["items"]] == found


def _read_events(space: Namespace, version: str, wanted: int) -> list[tuple[str, str, dict[str, Any]]]:
    query = {"watch": "1", "resourceVersion": version, "labelSelector": "w=1", "allowWatchBookmarks": "true"}
    stream = space.connection.stream(f"{space.base}/configmaps", {**query, "timeoutSeconds": "60"})
    found = []
    with contextlib.closing(iter(stream)) as lines:
        for line in lines:
            event = json.loads(line)
            if event["type"] == "BOOKMARK":
                continue
            metadata = event["object"].get("metadata") or {}
            found.append((event["type"], metadata.get("name", ""), event["object"]))
            if len(found) == wanted:
                break
    return found


def test_a_watch_tells_what_came_after_its_version(space: Namespace) -> None:
    version = space.ask("GET", "configmaps", labelSelector="w=1").document["metadata"]["resourceVersion"]
    space.ask("POST", "configmaps", {"metadata": {"name": "one", "labels": {"w": "1"}}})
    space.ask("POST", "configmaps", {"metadata": {"name": "two", "labels": {"w": "2"}}})
    space.ask("PATCH", "configmaps/one", {"data": {"k": "v"}})
    # An object that leaves the selector is deleted to this watch, and one that enters it is added.
    space.ask("PATCH", "configmaps/one", {"metadata": {"labels": {"w": "2"}}})
    space.ask("PATCH", "configmaps/two", {"metadata": {"labels": {"w": "1"}}})
    space.ask("DELETE", "configmaps/two")
    events = [event[:2] for event in _read_events(space, version, 5)]
    assert events == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"), ("ADDED", "two"), ("DELETED", "two")]


def test_a_watch_from_the_forgotten_past_expires_inside_its_stream(space: Namespace) -> None:
    version = space.ask("GET", "configmaps").document["metadata"]["resourceVersion"]
    space.ask("POST", "configmaps", {"metadata": {"name": "one", "labels": {"w": "1"}}})
    space.server.forget_history()
    [(kind, _, status)] = _read_events(space, version, 1)
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")


def test_a_deleted_pod_ends_with_its_grace_and_stays_for_its_finalizer(space: Namespace) -> None:
    pod = space.run_pod("held", metadata={"name": "held", "finalizers": ["overspan.io/outcome"]})
    answer = space.ask("DELETE", "pods/held", {"gracePeriodSeconds": 15, "preconditions": {"uid": pod.uid}})
    assert answer.document["metadata"]["deletionGracePeriodSeconds"] == 15
    space.server.end_pod("held", 3)
    ended = space.await_pod("held", "ended", lambda record: record.ended)
    assert (ended.exit_code, ended.phase, ended.deleting_at is not None) == (3, "Failed", True)
    assert ended.finished_at is not None and ended.started_at is not None and ended.finished_at >= ended.started_at
    wait_until(
        lambda: space.ask("GET", "pods/held").document["metadata"]["deletionGracePeriodSeconds"] == 0, 20.0, "let go"
    )
    space.ask("PATCH", "pods/held", {"metadata": {"finalizers": None}})
    space.await_gone("pods/held")


def test_a_shorter_grace_replaces_a_longer_one(space: Namespace) -> None:
    space.run_pod("slow", command="trap : TERM; while :; do sleep 1; done")
    space.ask("DELETE", "pods/slow", {"gracePeriodSeconds": 300})
    answer = space.ask("DELETE", "pods/slow", {"gracePeriodSeconds": 1})
    assert answer.document["metadata"]["deletionGracePeriodSeconds"] == 1
    space.ask("DELETE", "pods/slow", {"gracePeriodSeconds": 100})
    found = space.ask("GET", "pods/slow")
    assert found.status == 404 or found.document["metadata"]["deletionGracePeriodSeconds"] <= 1


def test_commands_in_a_container(space: Namespace) -> None:
    space.run_pod("busy")
    if isinstance(space.server, FakeServer):
        space.server.api.exec.reply = lambda run: (5, "out") if run.words[-1] == "echo out; exit 5" else (0, "")
    run = space.connection.exec
    assert run(space.server.namespace, "busy", "main", ["sh", "-c", "true"]) == (0, "")
    code, output = run(space.server.namespace, "busy", "main", ["sh", "-c", "echo out; exit 5"])
    assert (code, output.strip()) == (5, "out")
    with pytest.raises(NotFound, match="nobody"):
        run(space.server.namespace, "nobody", "main", ["true"])


def test_logs(space: Namespace) -> None:
    space.make_pod("unbound", spec={"nodeSelector": {"none": "such"}})
    assert space.connection.read(f"{space.base}/pods/unbound/log", {"container": "main"}) == b""
    space.make_pod("waits", spec={"containers": [{"name": "main", "image": "none.invalid/such:1"}]})
    space.server.hang_pod("waits")
    space.await_pod("waits", "is bound", lambda record: record.node)
    with pytest.raises(Rejected, match="waiting to start"):
        space.connection.read(f"{space.base}/pods/waits/log", {"container": "main"})
    record = space.run_pod("told")
    path = f"{space.base}/pods/told/log"
    wait_until(lambda: space.connection.read(path, {"container": "main"}) == b"begun\n", 20.0, "a line")
    stamp, _, text = space.connection.read(path, {"container": "main", "timestamps": "true"}).partition(b" ")
    assert text == b"begun\n" and len(stamp) >= len("2026-01-01T00:00:00Z")
    # The grain is a second: a line of the same second comes again.
    again = space.connection.read(path, {"container": "main", "sinceTime": f"{stamp[:19].decode()}Z"})
    assert again == b"begun\n"
    told: list[bytes] = []
    stream = space.connection.stream(path, {"container": "main", "follow": "true"})
    reader = threading.Thread(target=lambda: told.extend(stream))
    reader.start()
    wait_until(lambda: told == [b"begun"], 20.0, "the first line is followed")
    space.ask("DELETE", "pods/told", {"preconditions": {"uid": record.uid}})
    space.server.end_pod("told", 3)
    reader.join(120)
    assert told == [b"begun", b"ended"]


def test_a_quota_is_told_from_a_missing_right(space: Namespace, tmp_path: Path) -> None:
    space.server.limit_pods(1)
    space.make_pod("first", spec={"nodeSelector": {"none": "such"}})
    answer = space.ask("POST", "pods", make_pod("second"))
    assert answer.status == 403 and is_quota(answer)
    with space.server.open_stranger(tmp_path) as stranger:
        refused = stranger.request("POST", f"{space.base}/pods", body=make_pod("third"))
        assert refused.status == 403 and not is_quota(refused)
        assert 'cannot create resource "pods"' in refused.message
        assert not may(stranger, Right("create", "pods"), space.server.namespace)
        with pytest.raises(Denied, match="pods"):
            stranger.stream(f"{space.base}/pods", {"watch": "1"})
    assert may(space.connection, Right("create", "pods"), space.server.namespace)


def test_a_dry_run_makes_nothing_and_tells_the_time(space: Namespace) -> None:
    answer = space.ask("POST", "pods", make_pod("dry"), dryRun="All")
    assert answer.works and answer.document["metadata"]["creationTimestamp"]
    assert space.ask("GET", "pods/dry").status == 404


def test_a_watch_keeps_records_of_pods(space: Namespace) -> None:
    async def follow() -> None:
        watch = PodWatch(space.connection, space.server.namespace, SELECTOR)
        watch.start()

        async def until(accept: Callable[[], Any]) -> None:
            async with asyncio.timeout(180):
                while not accept():
                    await watch.changed.wait()
                    watch.changed.clear()

        await until(lambda: watch.fresh)
        space.make_pod(
            "one", metadata={"name": "one", "labels": {"overspan.io/launch": LAUNCH}, "finalizers": ["a.b/c"]}
        )
        await asyncio.to_thread(space.server.start_pod, "one")
        await until(lambda: any(record.started_at for record in watch.of(LAUNCH).values()))
        assert watch.of(LAUNCH)["one"].node and watch.of(LAUNCH)["one"].address
        await asyncio.to_thread(space.await_word, "one")
        space.ask("DELETE", "pods/one", {})
        await asyncio.to_thread(space.server.end_pod, "one", 3)
        await until(lambda: watch.of(LAUNCH)["one"].ended)
        space.ask("PATCH", "pods/one", {"metadata": {"finalizers": None}})
        await until(lambda: watch.gone(LAUNCH))
        assert [(record.name, record.exit_code) for record in watch.gone(LAUNCH)] == [("one", 3)]
        assert watch.of(LAUNCH) == {} and watch.trouble is None
        await watch.close()

    asyncio.run(follow())


def test_a_watch_outlives_a_server_that_is_away(space: Namespace) -> None:
    async def follow() -> None:
        watch = PodWatch(space.connection, space.server.namespace, SELECTOR, WatchTimes(first=0.1, longest=0.5))
        watch.start()

        async def until(accept: Callable[[], Any]) -> None:
            async with asyncio.timeout(300):
                while not accept():
                    await watch.changed.wait()
                    watch.changed.clear()

        space.make_pod("before", spec={"nodeSelector": {"none": "such"}})
        await until(lambda: watch.of(LAUNCH))
        with space.server.away():
            await until(lambda: isinstance(watch.trouble, Unreachable))
            assert set(watch.of(LAUNCH)) == {"before"} and watch.gone(LAUNCH) == ()
        space.make_pod("after", spec={"nodeSelector": {"none": "such"}})
        await until(lambda: set(watch.of(LAUNCH)) == {"before", "after"} and watch.trouble is None)
        assert watch.gone(LAUNCH) == ()
        await watch.close()

    asyncio.run(follow())


def test_check_says_what_works(space: Namespace) -> None:
    image: dict[str, Any] = {} if isinstance(space.server, FakeServer) else {"image": "rig/sh:1"}
    findings = check_cluster(space.connection, Settings(namespace=space.server.namespace, **image))
    found = {finding.what: finding for finding in findings}
    assert [finding for finding in findings if not finding.works] == []
    assert {"reach", "Kubernetes", "login", "rights", "gang", "submit", "clock", "quota", "names"} <= set(found)
    assert found["gang"].seen.startswith("soft gang" if isinstance(space.server, FakeServer) else "native PodGroup")
    left = space.ask("GET", "pods").document["items"]
    assert [one for one in left if not one["metadata"].get("deletionTimestamp")] == []


def test_nodes(space: Namespace) -> None:
    space.make_pod("used", spec={"nodeName": "node1", "containers": [_asking_container()]})
    if isinstance(space.server, FakeServer):
        space.server.api.objects.create_simple(
            "nodes",
            "node1",
            status={
                "allocatable": {"cpu": "2", "memory": "4Gi"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        )

    def look() -> Node | None:
        node = ask_nodes(space.connection, Settings(namespace=space.server.namespace))[0]
        return None if node.state == "down" else node

    # After an outage of the API server its nodes may count as lost for a moment.
    node = wait_until(look, 20.0, "the node to be up")
    assert node is not None
    assert (node.name, node.state, node.cpus) == ("node1", "mixed", 2.0)
    assert node.cpus_used >= 0.5 and node.memory_used >= 64 and node.memory > 1000


def _asking_container() -> dict[str, Any]:
    requests = {"cpu": "500m", "memory": "64Mi"}
    command = ["/bin/sh", "-c", "sleep 60"]
    return {"name": "main", "image": "rig/sh:1", "command": command, "resources": {"requests": requests}}
