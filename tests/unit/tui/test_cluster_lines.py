"""Lines of clusters, and the report of a check."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from tests.unit.tui.fake_source import NOW
from tests.unit.tui.labs import HOSTILE, cluster

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.tui.clusters.findings import count_faults, report_error, report_findings
from overspan.tui.clusters.lines import ClusterLine, format_latency, make_columns, make_lines
from overspan.tui.filter_language import fields_of_texts, read_words

ALL = read_words("", fields_of_texts(()))
CLUSTERS = [
    cluster("leo", default=True, jobs=3, calls_left="24 of 30, 2/s"),
    cluster("kube", "kubernetes", "stale", since=NOW - 130, message="Unreachable:\nno route", jobs=9),
    cluster("old", state="idle", answered_at=None, answer_seconds=None),
]


def cells(line: ClusterLine) -> dict[str, str]:
    return {column.name: column.cell(line, NOW).text for column in make_columns()}


def test_a_cluster_tells_its_contact_latency_budget_and_trouble() -> None:
    leo, kube, old = map(cells, make_lines(CLUSTERS, ALL, "configured"))
    assert leo == {
        "name": "leo*",
        "kind": "slurm",
        "state": "up",
        "jobs": "3",
        "contact": "0:02 ago",
        "took": "34 ms",
        "budget": "24 of 30, 2/s",
        "message": "",
    }
    assert kube["message"] == "for 2:10: Unreachable: no route"
    assert (old["contact"], old["took"], old["message"]) == ("-", "-", "nothing was sent there yet")


def test_a_daemon_of_another_version_tells_less() -> None:
    bare = {"name": "leo", "kind": "slurm", "state": "up"}
    assert cells(ClusterLine("leo", bare))["took"] == "-"


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("configured", ["leo", "kube", "old"]),
        ("name", ["kube", "leo", "old"]),
        ("state", ["kube", "old", "leo"]),
        ("jobs", ["kube", "leo", "old"]),
    ],
)
def test_orders(sort: str, names: list[str]) -> None:
    assert [line.key for line in make_lines(CLUSTERS, ALL, sort)] == names
    chosen = read_words("state:stale", fields_of_texts(("state",)))
    assert [line.key for line in make_lines(CLUSTERS, chosen, sort)] == ["kube"]


def test_latencies_are_short() -> None:
    assert [format_latency(each) for each in (0.0001, 0.23, 1.25, 14.2)] == ["1 ms", "230 ms", "1.2 s", "14 s"]


FINDINGS = [
    {"what": "Slurm", "works": True, "seen": "24.05, cluster leo", "remedy": ""},
    {"what": "user namespaces", "works": False, "seen": "on n1", "remedy": "ask the site for bwrap or nss_wrapper"},
]


def test_what_does_not_work_comes_first_with_its_remedy() -> None:
    lines = report_findings(FINDINGS, {}, 60)
    assert [(line.text, line.style) for line in lines] == [
        ("no   user namespaces  on n1", "bad"),
        ("                      ask the site for bwrap or nss_wrapper", "waiting"),
        ("ok   Slurm            24.05, cluster leo", "text"),
    ]
    assert count_faults(FINDINGS) == "1 of 2 checks failed"
    assert count_faults(FINDINGS[:1]) == "1 check passed" and count_faults([]) == "nothing was checked"


def test_the_way_to_log_in_is_told() -> None:
    login = {"cluster": "leo", "words": ["ssh", "-o", "ControlPath=/a b"]}
    texts = [line.text for line in report_findings([], login, 60)]
    assert texts[-2:] == ["  span login leo", "  which runs ssh -o 'ControlPath=/a b'"]


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_a_report_keeps_to_its_width_and_is_clean(width: int) -> None:
    nasty = {"what": HOSTILE, "works": False, "seen": HOSTILE + "word " * 40, "remedy": HOSTILE}
    lines = [*report_findings([*FINDINGS, nasty], {"cluster": HOSTILE, "words": [HOSTILE]}, width)]
    lines += report_error(HOSTILE, HOSTILE, width)
    assert not any(UNSAFE.search(line.text) for line in lines)
    assert all(cell_len(line.text) <= max(width, 50) for line in lines)


def test_a_long_name_stands_above_its_text() -> None:
    finding = {"what": "n" * 30, "works": True, "seen": "fine", "remedy": ""}
    assert [line.text.strip() for line in report_findings([finding], {}, 40)] == ["ok   " + "n" * 30, "fine"]


def test_hostile_clusters_are_clean() -> None:
    nasty = cluster(HOSTILE, HOSTILE, HOSTILE, message=HOSTILE, calls_left=HOSTILE)
    line = make_lines([nasty], ALL, "name")[0]
    assert not any(UNSAFE.search(text) for text in cells(line).values())
