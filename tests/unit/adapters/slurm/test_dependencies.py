from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.samples import read_file, read_script

from overspan.adapters.slurm.dependencies import Predecessor, is_retryable, plan_waiting, render_dependency
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed

OK = JobNeed(DependencyKind.AFTEROK, 12)
AFTER = JobNeed(DependencyKind.AFTER, 13, delay=90)
ELEMENT = JobNeed(DependencyKind.AFTERNOTOK, 14, element=3)
SINGLETON = JobNeed(DependencyKind.SINGLETON)
LIVE = Predecessor("rig", "1012", live=True, retryable=False)


def test_a_live_predecessor_that_cannot_be_retried_is_slurms_business() -> None:
    waiting = plan_waiting(Dependency((OK, AFTER)), {OK: LIVE, AFTER: LIVE}, frozenset(), "rig")
    assert waiting.native == {OK: "1012", AFTER: "1012"}
    assert plan_waiting(
        Dependency((SINGLETON,)), {SINGLETON: Predecessor("rig", "", True, False)}, frozenset(), "rig"
    ).native


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "not known"),
        (replace(LIVE, cluster="local"), "runs on local"),
        (replace(LIVE, live=False), "not live"),
        (replace(LIVE, native_id=""), "not live"),
        (replace(LIVE, retryable=True), "another id"),
    ],
)
def test_overspan_waits_for_anything_else(found: Predecessor | None, why: str) -> None:
    known = {AFTER: LIVE} if found is None else {AFTER: LIVE, OK: found}
    waiting = plan_waiting(Dependency((OK, AFTER)), known, frozenset(), "rig")
    assert waiting.native is None and why in waiting.why


def test_needs_that_are_met_count_no_more() -> None:
    assert plan_waiting(Dependency((OK, AFTER)), {AFTER: LIVE}, frozenset({OK}), "rig").native == {AFTER: "1012"}
    assert plan_waiting(Dependency((OK, AFTER), any=True), {}, frozenset({OK}), "rig").native == {}


def test_dependencies_are_written_as_sbatch_reads_them() -> None:
    native = {OK: "1012", AFTER: "1013", ELEMENT: "1014_3", SINGLETON: ""}
    whole = Dependency((OK, AFTER, ELEMENT, SINGLETON))
    assert render_dependency(whole, native) == "afterok:1012,after:1013+2,afternotok:1014_3,singleton"
    assert render_dependency(replace(whole, any=True), {OK: "1", AFTER: "2"}) == "afterok:1?after:2+2"
    assert render_dependency(whole, {}) == ""


def test_what_may_get_another_id() -> None:
    assert not is_retryable(read_script("#!/bin/sh\n"))
    assert is_retryable(read_file("name: x\nresources: {job_recovery: {max_restarts_on_errors: 2}}\nrun: x\n"))
    assert is_retryable(read_file("name: g\nexecution: parallel\n---\nname: a\nrun: a\n---\nname: b\nrun: b\n"))
