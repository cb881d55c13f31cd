"""A list of clusters with real processes: one that is full, one that refuses, and the daemon dead in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.system.conftest import Span

TWO = """
default_cluster: small
clusters:
  local: {kind: local, cpus: 1}
  small: {kind: local, cpus: 1, memory: 4G}
  big: {kind: local, cpus: 4, memory: 4G}
"""
LISTED = "name: moved\ncluster: [small, big]\nfailover_after: 20s\nresources: {cpus: 1}\nrun: echo ran once\n"


def fill(span: Span) -> int:
    """Keep the first cluster busy."""
    span.config.write_text(TWO)
    busy = span.submit("name: busy\ncluster: small\nresources: {cpus: 1}\nrun: sleep 3000\n")
    span.until(busy, "RUNNING")
    return busy


def test_a_full_cluster_is_left_for_the_next_although_the_daemon_dies(span: Span) -> None:
    busy = fill(span)
    job = span.submit(LISTED)
    shown = span.job(job)
    assert (shown["cluster"], shown["state"]) == ("small", "PENDING")
    span.kill_daemon()
    shown = span.until(job, "COMPLETED")
    assert (shown["cluster"], shown["restarts"]) == ("big", 0)
    assert [(each["cluster"], each["refused"]) for each in shown["passed"]] == [("small", False)]
    assert span.log(job) == "ran once\n"
    texts = [row["text"] for row in span.timeline(job)]
    assert "goes to the cluster big: it did not start in time" in texts
    assert texts.index("given to the cluster small") < texts.index("given to the cluster big")
    # Nothing of it is left on the first.
    assert span.run("squeue", "--noheader", "--format=%i %T").stdout.split("\n")[:-1] == [f"{busy} RUNNING"]
    assert "left small: not started within 20 s" in " ".join(span.run("show", str(job)).stdout.split())


def test_a_job_that_starts_in_time_stays(span: Span) -> None:
    busy = fill(span)
    job = span.submit(LISTED.replace("20s", "600s"))
    span.run("scancel", str(busy))
    assert span.until(job, "COMPLETED")["cluster"] == "small"


def test_a_cluster_that_refuses_is_passed_over_at_once(span: Span) -> None:
    span.config.write_text(TWO)
    file = span.folder / "wide.yaml"
    file.write_text("cluster: [small, big]\nresources: {cpus: 2}\nrun: echo wide\n")
    done = span.run("submit", str(file), "--parsable")
    assert "small: Requested node configuration is not available; 2 CPUs are wanted" in done.stderr
    assert "; it goes to big" in done.stderr
    assert span.until(int(done.stdout), "COMPLETED")["cluster"] == "big"
    file.write_text("cluster: [small, big]\nresources: {cpus: 8}\nrun: echo wider\n")
    done = span.run("submit", str(file), check=False)
    assert done.returncode != 0
    for name in ("small", "big"):
        assert f"{name}: Requested node configuration is not available" in done.stderr


def test_sbatch_takes_a_list_too(span: Span) -> None:
    fill(span)
    done = span.run("sbatch", "-M", "small,big", "--cpus-per-task=2", "--wrap", "echo wide")
    assert done.stdout.startswith("Submitted batch job 2") and "it goes to big" in done.stderr
    assert span.until(2, "COMPLETED")["cluster"] == "big"
