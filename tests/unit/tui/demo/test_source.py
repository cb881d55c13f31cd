"""The lab as a source: every method answers, orders change it, a version tells what is new."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from overspan.bridge.client.messages import CancelOrder, StreamKey
from overspan.bridge.client.records import JobFilter
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound
from overspan.bridge.model.ids import parse_array
from overspan.tui.daemon.source import Source
from overspan.tui.demo.source import DemoSource

NOW = 1_800_000_000.0


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(clock: Clock) -> DemoSource:
    return DemoSource(clock)


def find(source: DemoSource, **wanted: Any) -> JobRow:
    """A row with these values."""
    rows = source.queue_changes().rows
    return next(row for row in rows if all(getattr(row, name) == value for name, value in wanted.items()))


def state_of(source: DemoSource, ref: str) -> str:
    return str(source.show(ref)["state"])


def test_it_can_be_printed_without_a_terminal_ui() -> None:
    code = "import sys; from overspan.tui.demo.source import open_demo; open_demo(); sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_method_of_a_source_is_there() -> None:
    names = {name for name in vars(Source) if not name.startswith("_")}
    assert names <= set(dir(DemoSource))


def test_a_version_tells_what_changed_since(source: DemoSource, clock: Clock) -> None:
    whole = source.queue_changes()
    assert whole.whole and len(whole.rows) > 40
    same = source.queue_changes(whole.version)
    assert (same.whole, same.changed, same.rows, same.version) == (False, (), [], whole.version)
    clock.now += 120
    later = source.queue_changes(whole.version, wait=10)
    assert later.now == NOW + 120 and later.changed
    assert {row.id for row in later.rows} <= set(later.changed)
    held = {row.ref: row for row in whole.rows if row.id not in set(later.changed)} | {r.ref: r for r in later.rows}
    assert held == {row.ref: row for row in source.queue_changes().rows}


def test_an_unknown_version_tells_everything(source: DemoSource) -> None:
    assert source.queue_changes("another.1.2").whole and source.queue_changes("999999999").whole


def test_a_job_that_ended_long_ago_leaves_the_queue_and_stays_in_the_history(source: DemoSource, clock: Clock) -> None:
    failed = find(source, state="FAILED", name="ablate-kl")
    version = source.queue_changes().version
    clock.now += 3600
    changes = source.queue_changes(version)
    assert failed.id in changes.changed and all(row.id != failed.id for row in changes.rows)
    assert [row.state for row in source.history(JobFilter(ids=(failed.ref,))).rows] == ["FAILED"]


def test_a_queue_can_be_narrowed(source: DemoSource) -> None:
    rows = source.queue_changes("", JobFilter(users=("ana",), states=("RUNNING",))).rows
    assert rows and {(row.user, row.state) for row in rows} == {("ana", "RUNNING")}


def test_the_history_can_be_read_in_pages(source: DemoSource) -> None:
    whole = source.history().rows
    assert len(whole) > 500
    newest = source.history(JobFilter(limit=10)).rows
    assert newest == whole[-10:]
    old = source.history(JobFilter(until=NOW - 20 * 3600)).rows
    assert 0 < len(old) < len(whole)


def test_a_cancel_ends_a_job_after_a_moment(source: DemoSource, clock: Clock) -> None:
    row = find(source, name="trainer", group="rl-math")
    done = source.cancel(CancelOrder((str(row.id), "987654")))
    assert done.done == (str(row.id),) and [error.code for error in done.errors] == ["not_found"]
    assert state_of(source, str(row.id)) == "COMPLETING"
    clock.now += 10
    assert state_of(source, str(row.id)) == "CANCELLED"
    waiting = find(source, name="eval-rl-math")
    assert waiting.reason == "DependencyNeverSatisfied"


def test_an_array_is_cancelled_with_all_its_elements(source: DemoSource, clock: Clock) -> None:
    row = find(source, name="sweep-lr", state="PENDING")
    source.cancel(CancelOrder((str(row.id),)))
    clock.now += 10
    rows = [each for each in source.queue_changes().rows if each.array_id == row.id]
    assert {each.state for each in rows if each.ended_at and each.ended_at > NOW} == {"CANCELLED"}
    assert state_of(source, str(row.id)) == "CANCELLED"


def test_hold_and_release(source: DemoSource) -> None:
    row = find(source, reason="Priority")
    source.hold(row.ref)
    assert source.show(row.ref)["reason"] == "JobHeldUser"
    source.release(row.ref)
    assert source.show(row.ref)["reason"] != "JobHeldUser"
    with pytest.raises(Conflict, match="is not held"):
        source.release(row.ref)


def test_suspend_stops_the_clock_of_a_run_and_resume_lets_it_go_on(source: DemoSource, clock: Clock) -> None:
    row = find(source, name="nb-figures")
    source.suspend(row.ref)
    printed = source.log_part(row.ref, StreamKey()).size
    clock.now += 5 * 3600
    assert state_of(source, row.ref) == "SUSPENDED"
    source.resume(row.ref)
    assert source.log_part(row.ref, StreamKey()).size == printed
    assert find(source, name="nb-figures").paused == 5 * 3600
    clock.now += 3600
    assert state_of(source, row.ref) == "COMPLETED"


def test_requeue_restart_and_resubmit(source: DemoSource, clock: Clock) -> None:
    row = find(source, name="nb-figures")
    source.restart(row.ref)
    assert [run["cause"] for run in source.show(row.ref)["tasks"][0]["attempts"]] == ["restart", None]
    source.requeue(row.ref, hold=True)
    shown = source.show(row.ref)
    assert (shown["state"], shown["reason"], shown["restarts"]) == ("PENDING", "JobHeldUser", 1)
    again = source.resubmit(row.ref)
    clock.now += 5
    assert (state_of(source, str(again.id)), again.name) == ("RUNNING", "nb-figures")


def test_only_the_failed_elements_of_an_array_are_submitted_again(source: DemoSource) -> None:
    array = str(find(source, name="sweep-lr", state="PENDING").id)
    failed = [row for row in source.history(JobFilter(ids=(array,))).rows if row.ended_at and row.state != "COMPLETED"]
    again = source.resubmit(array, failed=True)
    rows = [row for row in source.queue_changes().rows if row.array_id == again.id]
    begun = {row.array_index for row in rows if row.array_index is not None}
    waiting = {index for row in rows if row.array_waiting for index in parse_array(row.array_waiting).indices()}
    assert failed and begun | waiting == {row.array_index for row in failed}


def test_an_elastic_task_is_scaled_and_its_members_end_with_the_group(source: DemoSource, clock: Clock) -> None:
    group = find(source, group="rl-math", name="rollout")
    assert group.members == "4 of 2-6" and source.show(str(group.id))["tasks"][1]["elastic"]["wanted"] == 4
    with pytest.raises(InvalidRequest, match="rollout has 2 to 6 members, and 7 is asked for"):
        source.scale(str(group.id), "rollout", 7)
    told = source.scale(group.ref, "", 3)
    assert (told["wanted"], told["present"]) == (3, 3)
    clock.now += 10
    assert find(source, name="rollout").members == "3 of 2-6"
    assert state_of(source, str(find(source, name="rollout-3").id)) == "COMPLETED"
    assert [row.family for row in source.queue_changes().rows if row.member_of] == [group.id, group.id]
    source.cancel(CancelOrder((str(group.id),)))
    clock.now += 10
    assert state_of(source, str(find(source, name="rollout-2").id)) == "CANCELLED"


def test_a_restart_of_one_task_leaves_the_others_alone(source: DemoSource) -> None:
    group = str(find(source, group="rl-math", name="reward").id)
    before = {task["name"]: len(task["attempts"]) for task in source.show(group)["tasks"]}
    source.restart(group, "reward")
    after = {task["name"]: len(task["attempts"]) for task in source.show(group)["tasks"]}
    assert after == before | {"reward": before["reward"] + 1}


def test_updates(source: DemoSource) -> None:
    row = find(source, reason="JobHeldUser")
    source.update(row.ref, {"time_limit": 60, "priority": 7, "comment": "later", "name": "probe"})
    shown = source.show(row.ref)
    told = (shown["name"], shown["priority"], shown["comment"], shown["tasks"][0]["time_limit"])
    assert told == ("probe", 7, "later", 60)
    with pytest.raises(InvalidRequest, match="nothing called 'colour'"):
        source.update(row.ref, {"colour": "red"})
    source.top(row.ref)
    assert source.show(row.ref)["priority"] > 7


def test_a_shorter_limit_and_an_earlier_begin_count_at_once(source: DemoSource, clock: Clock) -> None:
    running = find(source, group="rl-math", name="trainer")
    late = find(source, reason="BeginTime")
    source.update(str(running.id), {"time_limit": int(NOW - (running.started_at or 0)) + 60})
    source.update(late.ref, {"begin": NOW + 30, "priority": 9999})
    clock.now += 100
    assert state_of(source, str(running.id)) == "TIMEOUT"
    assert state_of(source, late.ref) == "RUNNING"
    with pytest.raises(InvalidRequest, match="partition"):
        source.update(find(source, reason="JobHeldUser").ref, {"partition": "gpux"})


@pytest.mark.parametrize(
    ("order", "state"),
    [
        (DemoSource.hold, "RUNNING"),
        (DemoSource.top, "RUNNING"),
        (DemoSource.suspend, "PENDING"),
        (DemoSource.resume, "RUNNING"),
        (DemoSource.requeue, "PENDING"),
        (DemoSource.restart, "PENDING"),
        (DemoSource.release, "RUNNING"),
    ],
)
def test_an_order_that_does_not_apply_is_refused(
    source: DemoSource, order: Callable[[DemoSource, str], None], state: str
) -> None:
    row = find(source, state=state, array_id=None, group="")
    with pytest.raises(Conflict):
        order(source, row.ref)


def test_what_is_not_there_is_said(source: DemoSource) -> None:
    for ask in (source.show, source.script, source.timeline, source.streams, source.hold):
        with pytest.raises(NotFound):
            ask("987654")
    for schedule in (source.pause_schedule, source.run_schedule):
        with pytest.raises(NotFound):
            schedule(99)
    with pytest.raises(NotFound, match="has not started"):
        source.log_part(find(source, state="PENDING", array_id=None).ref, StreamKey())


def test_a_log_grows_and_any_part_of_it_can_be_read(source: DemoSource, clock: Clock) -> None:
    row = find(source, group="rl-math", name="trainer")
    key = StreamKey(task="trainer")
    first = source.log_part(str(row.id), key, limit=4 << 20)
    assert b"\r" in first.data and b"\x1b[32m" in first.data and not first.over
    clock.now += 300
    second = source.log_part(str(row.id), key, offset=first.size)
    assert second.offset == first.size and second.size == first.size + len(second.data) > first.size
    assert source.log_part(row.ref, StreamKey(), offset=-10).data == second.data[-10:]
    assert first.data == source.log_part(str(row.id), key, limit=first.size).data


def test_each_attempt_and_node_has_a_log_of_its_own(source: DemoSource) -> None:
    row = find(source, group="rl-math", name="rollout")
    streams = source.streams(str(row.id), times=True)
    assert {(each.task, each.node, each.attempt) for each in streams} == {
        ("trainer", 0, 0), ("rollout", 0, 0), ("rollout", 1, 0), ("rollout", 0, 1), ("rollout", 1, 1), ("reward", 0, 0),
    }  # fmt: skip
    for each in streams:
        part = source.log_part(str(row.id), StreamKey(each.task, each.node, each.attempt), limit=4 << 20)
        assert part.size == each.size and each.marks is not None and each.marks[-1][1] == each.size
    ended = source.log_part(str(row.id), StreamKey("rollout", 0, 0), limit=4 << 20)
    assert ended.over and b"NCCL WARN" in ended.data


def test_nodes_and_clusters_agree_with_the_queue(source: DemoSource) -> None:
    document = source.nodes(("leo",))
    assert {node["cluster"] for node in document["nodes"]} == {"leo"}
    running = [row for row in source.queue_changes().rows if row.cluster == "leo" and row.state == "RUNNING"]
    suspended = [row for row in source.queue_changes().rows if row.cluster == "leo" and row.state == "SUSPENDED"]
    used = sum(node["gpus_used"] for node in document["nodes"])
    assert used == sum(row.gpus for row in running + suspended)
    states = {node["state"] for node in source.nodes()["nodes"]}
    assert {"idle", "mixed", "allocated", "drained", "down"} <= states
    assert {cluster["name"] for cluster in source.clusters()} == {"leo", "alps", "orbit", "local"}


def test_checkpoints_are_evaluated_while_their_trainer_goes_on(source: DemoSource, clock: Clock) -> None:
    watches = {watch["name"]: watch for watch in source.watches()}
    assert {(watch["job_name"], watch["lowest_is_best"]) for watch in watches.values()} == {
        ("rl-math", False),
        ("rl-code", True),
    }
    for name, counted in watches.items():
        (told,) = source.evals(str(counted["job"]))
        scored = [each for each in told["evaluations"] if each["score"] is not None]
        assert told["name"] == name and len(scored) > 8
        best = [each for each in scored if each["best"]]
        assert [each["score"] for each in best] == [counted["best_score"]]
        assert sum(counted["states"].values()) == len(told["evaluations"])
        assert scored[0]["job"] and state_of(source, str(scored[0]["job"])) == "COMPLETED"
    known = sum(watches["gsm8k"]["states"].values())
    clock.now += 3 * 3600
    later = next(watch for watch in source.watches() if watch["name"] == "gsm8k")
    assert sum(later["states"].values()) > known


def test_a_checkpoint_is_evaluated_again(source: DemoSource, clock: Clock) -> None:
    job = next(str(watch["job"]) for watch in source.watches() if watch["name"] == "gsm8k")
    (made,) = source.run_evaluation(job, "step_100", "gsm8k")
    assert made["run"] == 1 and made["checkpoint"] == "step_100"
    clock.now += 12 * 3600
    again = [each for each in source.evals(job)[0]["evaluations"] if each["id"] == made["id"]]
    assert again[0]["state"] == "COMPLETED" and again[0]["score"] is not None
    with pytest.raises(InvalidRequest, match="does not fit the pattern"):
        source.run_evaluation(job, "nothing")
    with pytest.raises(NotFound, match="has no evaluations"):
        source.run_evaluation(job, "step_100", "other")


def test_schedules_run_when_they_are_due_and_when_they_are_told_to(source: DemoSource, clock: Clock) -> None:
    hourly = next(each for each in source.schedules() if each["name"] == "sync-datasets")
    number = source.run_schedule(hourly["id"])
    assert source.show(str(number))["name"] == "sync-datasets"
    source.pause_schedule(hourly["id"])
    clock.now += 7200
    paused = next(each for each in source.schedules() if each["id"] == hourly["id"])
    assert (paused["paused"], paused["next_due"], paused["last_job"]) == (True, None, number)
    source.resume_schedule(hourly["id"])
    clock.now += 3601
    after = next(each for each in source.schedules() if each["id"] == hourly["id"])
    assert after["last_job"] > number and after["next_due"] > clock.now


def test_a_wait_ends_with_its_time_where_nothing_changes(source: DemoSource) -> None:
    version = source.queue_changes().version
    begun = time.monotonic()
    assert source.queue_changes(version, wait=0.3).version == version
    assert time.monotonic() - begun >= 0.3


def test_scripts_say_what_was_asked_for(source: DemoSource) -> None:
    array = find(source, name="sweep-lr", state="PENDING")
    assert "#SBATCH --array=0-63%6" in source.script(str(array.id))
    group = source.script(str(find(source, group="rl-math").id))
    assert group.count("---") == 3 and "primary_tasks: [trainer]" in group
