"""What trials of the ways between clusters tell about a group."""

from __future__ import annotations

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.reach import ReachFinding, ReachNeed, ReachSide, find_closed, has_port, judge_need

LEO, KUBE, HOST = ReachSide("leo"), ReachSide("kube"), ReachSide("kube", True)


def found(source: ReachSide, target: ReachSide, port: int, works: bool) -> ReachFinding:
    return ReachFinding(source, target, port, works, "n1 to 10.0.0.1", 5.0)


def test_a_need_is_decided_by_its_own_ports_and_else_by_any() -> None:
    need = ReachNeed(LEO, KUBE, ("8000", "9000-9010"))
    open_, closed = found(LEO, KUBE, 8000, True), found(LEO, KUBE, 9005, False)
    assert judge_need(need, []) is None
    assert judge_need(need, [found(KUBE, LEO, 8000, True), found(LEO, HOST, 8000, True)]) is None
    assert judge_need(need, [open_]) == open_
    assert judge_need(need, [open_, closed]) == closed
    other = found(LEO, KUBE, 29500, False)
    assert judge_need(need, [other]) == other
    assert judge_need(need, [other, open_]) == open_
    works = found(LEO, KUBE, 29501, True)
    assert judge_need(ReachNeed(LEO, KUBE), [other, works]) == works


def test_a_group_is_closed_by_a_way_to_named_ports_or_by_all() -> None:
    there, back = ReachNeed(LEO, KUBE), ReachNeed(KUBE, LEO)
    no_way, way = found(LEO, KUBE, 29500, False), found(KUBE, LEO, 29500, True)
    assert find_closed([there, back], [no_way, way]) == []
    assert find_closed([there, back], [no_way]) == []
    assert find_closed([there, back], [no_way, way._replace(works=False)]) == [no_way, way._replace(works=False)]
    assert find_closed([there._replace(ports=("8000",)), back], [no_way, way]) == [no_way]
    assert find_closed([there, back._replace(ports=("8000",))], [no_way, way]) == []


def test_ports_and_documents() -> None:
    assert has_port("8000", 8000) and has_port("8000-8010", 8010)
    assert not has_port("8000", 80) and not has_port("8000-8010", 8011)
    finding = found(LEO, HOST, 1, True)
    assert decode(ReachFinding, encode(finding)) == finding
