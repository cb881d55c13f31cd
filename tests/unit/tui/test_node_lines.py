"""What clusters told of their nodes, and the lines made of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.labs import HOSTILE, cluster, node

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.tui.filter_language import fields_of_texts, read_words
from overspan.tui.nodes.answers import (
    ClusterNodes,
    count_states,
    find_pause,
    is_able,
    note_answer,
    note_clusters,
    note_failure,
    sum_nodes,
)
from overspan.tui.nodes.lines import (
    NodeLine,
    NodeLineKey,
    NodeView,
    UseWidths,
    count_jobs,
    describe,
    make_columns,
    make_lines,
    measure_uses,
    style_of,
)

FIELDS = ("cluster", "node", "partition", "reason", "state")
USES = UseWidths(7, 9, 3)
LEO = ClusterNodes("leo", (node("n10"), node("n9", state="idle", cpus_used=0.0), node("c1", partition="cpu")), NOW)


def view(source: str = "", **more: Any) -> NodeView:
    return NodeView(read_words(source, fields_of_texts(FIELDS)))._replace(**more)


def names(lines: list[NodeLine]) -> list[str]:
    return [line.key.node or f"{line.key.cluster}:{line.key.partition}" for line in lines]


def texts(line: NodeLine, now: float = NOW, width: int = 140) -> list[str]:
    return [column.cell(line, now).text for column in make_columns(width, USES)]


def test_nodes_stand_below_their_partitions_by_number() -> None:
    lines = make_lines([LEO], {("leo", "n9"): 2}, view())
    assert names(lines) == ["leo:gpu", "n9", "n10", "leo:cpu", "c1"]
    assert [line.jobs for line in lines] == [2, 2, 0, 0, 0]
    assert [line.last for line in lines] == [False, False, True, False, True]
    assert texts(lines[0])[0] == "▾ leo:gpu*" and texts(lines[2])[0] == " └ n10"


def test_a_partition_sums_up_its_nodes_in_the_words_of_sinfo() -> None:
    head = make_lines([LEO], {}, view())[0]
    assert head.share("cpus") == (40.0, 128.0)
    assert texts(head)[-1] == "2 nodes, 1 in use, 1 idle; limit 1-00:00:00"


def test_columns_are_as_wide_as_their_amounts_and_gpus_have_one_where_there_are_any() -> None:
    lines = make_lines([LEO], {}, view())
    assert measure_uses(lines) == UseWidths(len("40/128"), len("195G/512G"), len("12/16"))
    bare = make_lines([ClusterNodes("leo", (node("n1", gpus=0, cpus=131072.0),))], {}, view())
    assert measure_uses(bare) == UseWidths(len("40/131072"), len("98G/256G"), 0)
    assert "gpus" not in [column.name for column in make_columns(80, measure_uses(bare))]


def test_a_node_of_two_partitions_counts_once() -> None:
    twice = ClusterNodes("leo", (node("n1"), node("n1", partition="all")), NOW)
    assert count_states([twice]) == (1, 1)
    assert sum_nodes(twice.nodes, "cpus") == 64.0


@pytest.mark.parametrize(
    ("state", "able"),
    [("idle", True), ("mixed", True), ("idle*", False), ("drained", False), ("idle~", True), ("down", False)],
)
def test_which_nodes_take_work(state: str, able: bool) -> None:
    assert is_able(state) is able


def test_a_filter_keeps_the_heads_of_what_matches() -> None:
    assert names(make_lines([LEO], {}, view("state:idle"))) == ["leo:gpu", "n9"]
    assert names(make_lines([LEO], {}, view("part:cpu"))) == ["leo:cpu", "c1"]
    assert names(make_lines([LEO], {}, view("!gpu"))) == ["leo:cpu", "c1"]
    assert make_lines([LEO], {}, view("nowhere")) == []


def test_a_folded_partition_hides_its_nodes() -> None:
    lines = make_lines([LEO], {}, view(folded={NodeLineKey("leo", "gpu")}))
    assert names(lines) == ["leo:gpu", "leo:cpu", "c1"]
    assert texts(lines[0])[0].startswith("▸ ")


def test_sorting_stays_within_a_partition() -> None:
    busy = ClusterNodes("leo", (node("n1", cpus_used=1.0), node("n2", cpus_used=60.0), node("c1", partition="cpu")))
    assert names(make_lines([busy], {}, view(sort="cpus"))) == ["leo:gpu", "n2", "n1", "leo:cpu", "c1"]
    assert names(make_lines([busy], {}, view(sort="cpus", reverse=True)))[1:3] == ["n1", "n2"]
    down = ClusterNodes("leo", (node("n1"), node("n2", state="down*", reason="fan")))
    assert names(make_lines([down], {}, view(sort="state")))[1:] == ["n2", "n1"]
    assert names(make_lines([down], {}, view(sort="reason")))[1:] == ["n2", "n1"]


def test_jobs_are_counted_by_node_and_not_by_task() -> None:
    rows = [
        job(1, node_list="n[1-2]"),
        job(1, node_list="n1", task_offset=1),
        job(2, node_list="n1"),
        job(3, state="PENDING"),
        job(4, state="COMPLETED", node_list="n1"),
        job(5, node_list="n[broken"),
    ]
    assert count_jobs(rows) == {("leo", "n1"): 2, ("leo", "n2"): 1, ("leo", "n[broken"): 1}


def test_a_silent_cluster_keeps_its_nodes_and_tells_their_age() -> None:
    known = note_clusters({}, [cluster("leo")])
    document = {"now": NOW, "clusters": [{"name": "leo", "message": ""}], "nodes": [node("n1")]}
    known = note_answer(known, "leo", document)
    known = note_answer(known, "leo", {"now": NOW + 60, "clusters": [{"name": "leo", "message": "ssh timed out"}]})
    assert (known["leo"].told_at, known["leo"].failures, len(known["leo"].nodes)) == (NOW, 1, 1)
    head, line = make_lines(known.values(), {}, view())
    assert texts(head, NOW + 125)[-1] == "2:05 old: ssh timed out" and style_of(head) == "bad"
    assert {column.cell(line, NOW).style for column in make_columns(140, USES)} == {"dim"}
    known = note_answer(known, "leo", document)
    assert not known["leo"].old and known["leo"].failures == 0


def test_a_cluster_that_was_never_asked_says_what_to_do() -> None:
    known = note_clusters({}, [cluster("new", state="idle"), cluster("gone", state="unconfigured", message="why")])
    new, gone = make_lines(known.values(), {}, view())
    assert not known["new"].asked and "Enter asks it" in texts(new)[-1]
    assert not known["gone"].asked and texts(gone)[-1] == "why"
    assert note_clusters({}, [cluster("new", state="idle", default=True)])["new"].asked
    assert known["new"]._replace(wanted=True).asked


def test_clusters_come_and_go() -> None:
    known = note_clusters({}, [cluster("leo"), cluster("kube")])
    known = note_answer(known, "leo", {"now": NOW, "clusters": [], "nodes": [node("n1")]})
    known = note_clusters(known, [cluster("leo")])
    assert list(known) == ["leo"] and known["leo"].nodes
    assert note_failure(known, "kube", "too late") == known


def test_a_slow_or_failing_cluster_is_asked_less_often() -> None:
    kube, leo = ClusterNodes("kube"), ClusterNodes("leo", own_queue=True)
    assert [find_pause(kube, took) for took in (0.01, 1.0, 30.0)] == [5.0, 10.0, 60.0]
    assert [find_pause(kube._replace(failures=failures), 0.0) for failures in (1, 2, 9)] == [10.0, 20.0, 60.0]
    # slurmctld serves everybody.
    assert [find_pause(leo, took) for took in (0.01, 2.0)] == [15.0, 20.0]


def test_hostile_texts_are_clean_in_every_cell() -> None:
    nasty = node(f"n{HOSTILE}", cluster=f"c{HOSTILE}", partition=HOSTILE, state=HOSTILE, reason=HOSTILE)
    told = ClusterNodes(f"c{HOSTILE}", (nasty,), NOW, trouble="")
    silent = told._replace(trouble=HOSTILE)
    for known in (told, silent, silent._replace(nodes=())):
        for line in make_lines([known], {}, view()):
            assert not any(UNSAFE.search(text) for text in texts(line))
            assert describe(line, NOW)


def test_ascii_has_nothing_else() -> None:
    lines = make_lines([LEO], {}, view())
    columns = make_columns(80, USES, ascii_only=True)
    assert all(column.cell(line, NOW).text.isascii() for column in columns for line in lines)
