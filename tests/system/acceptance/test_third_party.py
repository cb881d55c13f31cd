"""An adapter of somebody else's: a package of its own, known by its entry point alone, works like the built-in ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.conftest import Span

ADAPTER = """\
from typing import Annotated

from tests.contract.fake import FakeAdapter, FakeWorld

from overspan.adapters.settings import read_cluster_settings
from overspan.adapters.traits import Traits
from overspan.bridge.validation.models import DocumentModel, Whole, between


class Settings(DocumentModel):
    racks: Annotated[Whole, between(1, 9)] = 1


class Memory(FakeAdapter):
    def __init__(self, config):
        read_cluster_settings(Settings, config)
        super().__init__(FakeWorld())
        self.name = config.name
        self.traits = Traits(default_partition=lambda: "quick", own_queue=True)


class Bare(FakeAdapter):
    traits = None


open_cluster = Memory


def open_bare(config):
    return Bare(FakeWorld())
"""


CONFIGURATION = """\
clusters:
  mem: {kind: memory, racks: 2}
  off:
    kind: memory
    rack: 2
    racks: 12
  bare: {kind: bare}
  local: {kind: local, cpus: 4, memory: 4G}
"""


@pytest.fixture
def memory(span: Span, tmp_path: Path) -> Span:
    """An installation with that package, and a cluster of its kind."""
    packages = tmp_path / "site-packages"
    about = packages / "overspan_memory-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: overspan-memory\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[overspan.adapters]\nmemory = overspan_memory:open_cluster\nbare = overspan_memory:open_bare\n"
    )
    (packages / "overspan_memory.py").write_text(ADAPTER)
    span.config.write_text(CONFIGURATION)
    root = Path(__file__).parents[3]
    # A daemon of its own process reads the path; the others are forked.
    span.run("ping", environment={"PYTHONPATH": f"{packages}:{root}"})
    return span


def test_jobs_run_and_end_there(memory: Span) -> None:
    good = memory.submit("run: hello exit 0", "-M", "mem")
    bad = memory.submit("run: exit 3", "-M", "mem")
    assert memory.until(good, "COMPLETED")["exit_code"] == 0
    assert memory.until(bad, "FAILED")["exit_code"] == 3
    assert "hello" in memory.run("logs", str(good)).stdout
    assert memory.run("sacct", "-M", "mem", "-n", "-X", "-P", "-o", "JobID,State").stdout.split() == [
        f"{good}|COMPLETED",
        f"{bad}|FAILED",
    ]


def test_what_runs_there_is_listed_and_cancelled(memory: Span) -> None:
    job = memory.submit("run: for ever", "-M", "mem")
    memory.until(job, "RUNNING")
    assert memory.run("squeue", "-M", "mem", "-h", "-o", "%i %t %N").stdout.split() == [str(job), "R", "fake-1"]
    assert "fake-1" in memory.run("sinfo", "-M", "mem", "-N").stdout
    memory.run("scancel", str(job))
    memory.until(job, "CANCELLED")


def test_what_can_never_run_there_is_told_in_its_words(memory: Span) -> None:
    job = memory.run("sbatch", "-M", "mem", "-c", "64", "--parsable", "--wrap", "exit 0").stdout.partition(";")[0]
    memory.until(int(job), "FAILED")
    assert "Refused:     too large" in memory.run("show", job).stdout


def test_its_traits_count_as_those_of_the_built_in_ones(memory: Span) -> None:
    job = memory.submit("run: for ever", "-M", "mem")
    memory.until(job, "RUNNING")
    assert memory.run("squeue", "-M", "mem", "-h", "-o", "%i %P").stdout.split() == [str(job), "quick"]
    refused = memory.run("scontrol", "top", str(job), check=False)
    assert refused.returncode != 0 and "on mem is that of" in refused.stderr
    memory.run("scancel", str(job))
    memory.until(job, "CANCELLED")


def test_one_that_states_no_traits_is_refused_with_the_way_out(memory: Span) -> None:
    done = memory.run("sbatch", "-M", "bare", "--wrap", "true", check=False)
    assert "clusters of kind 'bare' states no traits: it is for another version of Overspan" in done.stderr
    assert "install a version of its package" in done.stderr
    good = memory.submit("run: exit 0", "-M", "mem")
    memory.until(good, "COMPLETED")


def test_its_settings_are_refused_with_file_line_and_nearest_key(memory: Span) -> None:
    told = memory.run("sinfo", "-M", "off", check=False).stderr
    assert f"{memory.config}:5:5: unknown key 'clusters.off.rack'" in told and "did you mean 'racks'?" in told
    assert f"{memory.config}:6:12: clusters.off.racks: 12 is out of range; it must be from 1 to 9" in told
