"""snakemake with its Slurm executor, unmodified: rules that depend on each other, one on several CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

RULES = """
rule all:
    input: "c.txt"
rule a:
    output: "a.txt"
    shell: "echo a > {output}"
rule b:
    output: "b.txt"
    threads: 2
    resources: mem_mb=1000
    shell: "echo b > {output}"
rule c:
    input: "a.txt", "b.txt"
    output: "c.txt"
    shell: "cat {input} > {output}"
"""
QUICK = ("--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1")


def test_its_own_workload(run_client: Any, span: Any, tmp_path: Path) -> None:
    check(run_client, span, tmp_path)


def test_its_own_workload_in_pods(run_in_pods: Any, kube: Any, tmp_path: Path) -> None:
    check(run_in_pods("snakemake"), kube, tmp_path)


def check(run_client: Any, span: Any, tmp_path: Path) -> None:
    """Run it, and look at what it made and at its jobs."""
    (tmp_path / "Snakefile").write_text(RULES)
    limits = ("--default-resources", "mem_mb=1000", "runtime=60")
    done = run_client("snakemake", "snakemake", "--executor", "slurm", "--jobs", "3", *QUICK, *limits)
    assert "4 of 4 steps (100%) done" in done.stderr
    assert (tmp_path / "c.txt").read_text() == "a\nb\n"
    states = span.run("sacct", "-nXo", "State").stdout.split()
    assert states == ["COMPLETED"] * 3
