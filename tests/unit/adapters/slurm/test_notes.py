"""What a Slurm cluster accepts without its full effect, and how long nodes are kept after a failure."""

from __future__ import annotations

import pytest
from tests.unit.adapters.slurm.samples import read_file, read_script

from overspan.adapters.abilities import Notes as NotesOf
from overspan.adapters.contract import ClusterConfig
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.cluster import list_notes
from overspan.adapters.slurm.groups.lifetimes import latest_ends
from overspan.adapters.slurm.rendering.images import APPTAINER, PYXIS
from overspan.adapters.slurm.settings import Settings

IMAGE = "name: x\nresources: {image_id: 'docker:a'}\nrun: x\n"


@pytest.mark.parametrize(("runtime", "count"), [(PYXIS, 1), (APPTAINER, 0)])
def test_a_step_of_pyxis_has_no_grace(runtime: str, count: int) -> None:
    notes = list_notes(read_file(IMAGE), Settings(containers=runtime))
    assert len(notes) == count and all("grace_period of x has no effect on a cancel" in note for note in notes)


def test_a_batch_script_keeps_no_nodes() -> None:
    script = read_script("#!/bin/sh\ntrue\n", ("--hold-on-failure=60", "x.sh"))
    (note,) = list_notes(script, Settings())
    assert "hold_on_failure has no effect on a batch script" in note
    assert list_notes(read_file("name: x\nhold_on_failure: 60\nrun: x\n"), Settings()) == ()
    assert list_notes(read_script("#!/bin/sh\ntrue\n"), Settings()) == ()


def test_the_cluster_tells_its_notes() -> None:
    cluster = SlurmCluster(ClusterConfig("leo", "slurm", {"containers": PYXIS}))
    assert isinstance(cluster, NotesOf) and len(cluster.notes(read_file(IMAGE))) == 1


def test_limits_leave_room_for_the_look_at_a_failure() -> None:
    text = (
        "name: g\nexecution: parallel\nhold_on_failure: {hold}\n---\nname: a\ntime: 1h\nrun: a\n---\nname: b\nrun: b\n"
    )
    before, after = (latest_ends(read_file(text.format(hold=hold))) for hold in ("0", "10m"))
    assert before["a"] is not None and after == {"a": before["a"] + 600, "b": None}
