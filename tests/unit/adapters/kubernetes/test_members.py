"""Further members of elastic tasks as pods: names in their group's domain, and lists of members as marks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.unit.adapters.kubernetes.pods import T, ended, group, placed, running
from tests.unit.adapters.kubernetes.samples import TOKEN, render_job

from overspan.adapters.kubernetes.launches.pod_actions import LaunchFacts, PatchPod, plan_actions
from overspan.adapters.kubernetes.manifests.names import has_names
from overspan.adapters.kubernetes.observation.projection import Cursor, take_snapshot
from overspan.adapters.kubernetes.observation.records import MEMBER, MEMBERS, NOTICE, read_pod
from overspan.bridge.model import events
from overspan.bridge.model.elastic import Elastic, MemberOf, Peer
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

PEERS = (Peer("trainer", 0, "n1", "10.0.0.1", "RUNNING"),)


def make_member(index: int = 3) -> Job:
    """A further member of job 7, which is launched for the second time."""
    member = MemberOf(7, "RL", 1, "rollout", index, PEERS)
    return new_job(9, JobSpec(f"rollout-{index}", (TaskSpec("rollout", run="true"),), member=member, parent=7), 1.0)


def make_group() -> Job:
    tasks = (
        TaskSpec("trainer", run="true"),
        TaskSpec("rollout", run="true", num_nodes=2, primary=False, elastic=Elastic(2, 4, 2)),
    )
    return new_job(7, JobSpec("RL", tasks, group=True), 1.0)


def variables_of(pod: dict[str, Any]) -> dict[str, str]:
    """The plain values of the main container's variables."""
    main = next(each for each in pod["spec"]["containers"] if each["name"] == "main")
    return {entry["name"]: entry["value"] for entry in main["env"] if "value" in entry}


def test_a_further_member_is_a_pod_of_its_group_s_service() -> None:
    objects = render_job(make_member())
    (pod,) = objects.pods
    assert objects.service is None and has_names(make_member())
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("rollout-3", "rl")
    assert pod["metadata"]["labels"][MEMBER] == TOKEN.format(job=7, launch=1)
    # One that had the index before may still be there.
    assert pod["metadata"]["name"] == "rl-rollout-3-9-a0"
    service = render_job(make_group()).service
    assert service is not None and service["metadata"]["name"] == "rl"
    assert service["spec"]["selector"] == {MEMBER: TOKEN.format(job=7, launch=0)}


def test_its_variables_are_those_of_a_member() -> None:
    (pod,) = render_job(make_member()).pods
    found = variables_of(pod)
    wanted = {
        "OVERSPAN_GROUP": "RL",
        "OVERSPAN_NODE_INDEX": "3",
        "OVERSPAN_HOST": "rollout-3.rl",
        "OVERSPAN_TRAINER_HOSTS": "trainer-0.rl",
        "SLURMD_NODENAME": "rollout-3",
        "OVERSPAN_MEMBERS_FILE": "/overspan/pod/members.json",
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_the_list_of_members_is_a_file_of_the_pod_from_the_start() -> None:
    for job in (make_member(), make_group()):
        for pod in render_job(job).pods:
            document = json.loads(pod["metadata"]["annotations"][MEMBERS])
            assert document["generation"] == 0 and "trainer-0.rl" in [each["name"] for each in document["members"]]
            items = [
                item
                for volume in pod["spec"]["volumes"]
                for item in (volume.get("downwardAPI") or {}).get("items", ())
                if item["path"] == "members.json"
            ]
            assert [item["fieldRef"]["fieldPath"] for item in items] == [f"metadata.annotations['{MEMBERS}']"]


def test_a_new_list_is_written_to_every_pod_that_lives() -> None:
    waits, runs = placed("trainer"), running("rollout", 0)
    rows = (("trainer", 0, "n1", "10.0.0.1", "RUNNING"), ("rollout", 4, "n2", "10.0.0.9", "RUNNING"))
    facts = LaunchFacts(group(), take_snapshot([waits, runs, ended("rollout", 1)]), Cursor(True), T + 100)
    actions = plan_actions(events.SetPeers(T + 90, 5, rows), facts._replace(summary=replace(group(), domain="rl")))
    assert [action.pod for action in actions if isinstance(action, PatchPod)] == [waits, runs]
    for action in actions:
        assert isinstance(action, PatchPod)
        document = json.loads(action.annotations[MEMBERS] or "")
        assert document["generation"] == 5
        assert [each["name"] for each in document["members"]] == ["trainer-0.rl", "rollout-4.rl"]
    # A group without names has no domain.
    (first, _) = plan_actions(events.SetPeers(T + 90, 5, rows), facts)
    assert isinstance(first, PatchPod) and '"trainer-0"' in (first.annotations[MEMBERS] or "")


def test_a_member_that_is_to_go_is_known_to_leave() -> None:
    facts = LaunchFacts(group(), take_snapshot([running("rollout", 0)]), Cursor(True), T + 100)
    actions = plan_actions(events.Notice(T + 90, "rollout", T + 95, "scaled_down"), facts)
    notice = next(action.annotations[NOTICE] for action in actions if isinstance(action, PatchPod))
    assert json.loads(notice or "")["kind"] == "scaled_down"
    assert read_pod({"metadata": {"annotations": {NOTICE: notice}}}).leaves_at == T + 95
