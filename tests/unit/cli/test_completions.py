"""What a word of a command line may become."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overspan.bridge.cli.service.completion_grammar import complete


class Known:
    def jobs(self) -> list[str]:
        return ["7", "train"]

    def tasks(self, ref: str) -> list[str]:
        return [f"task-of-{ref}"]

    def clusters(self) -> list[str]:
        return ["local", "lab"]

    def schedules(self) -> list[str]:
        return ["c3"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("squeue -t RU", ["RUNNING"]),
        ("squeue -t ru", ["RUNNING"]),
        ("squeue --states=PENDING,RU", ["--states=PENDING,RUNNING"]),
        ("squeue -t PENDING,COMPLETI", ["PENDING,COMPLETING"]),
        ("squeue -j ", ["7", "train"]),
        ("squeue ", []),
        ("top -t RUN", ["RUNNING"]),
        ("top -M lo", ["local"]),
        ("sacct -s NO", ["NODE_FAIL"]),
        ("sbatch -M l", ["local", "lab"]),
        ("sbatch ", []),
        ("submit --cluster=lo", ["--cluster=local"]),
        ("check ", ["local", "lab"]),
        ("scancel t", ["train"]),
        ("scancel 7 t", ["train"]),
        ("logs t", ["train"]),
        ("logs 7 ", ["task-of-7"]),
        ("logs -f 7 ", ["task-of-7"]),
        ("scontrol req", ["requeue", "requeuehold"]),
        ("scontrol hold ", ["7", "train"]),
        ("scontrol show ", ["job", "step", "node", "partition", "config", "hostnames", "hostlist"]),
        ("scontrol show job ", ["7", "train"]),
        ("scontrol show config ", []),
        ("scontrol ping ", []),
        ("scontrol -M local hold 7", ["7"]),
        ("cron p", ["pause"]),
        ("cron pause ", ["c3"]),
        ("completion z", ["zsh"]),
        ("completion zsh ", []),
        ("nosuch ", []),
    ],
)
def test_a_word_becomes_what_stands_at_its_place(line: str, found: list[str]) -> None:
    assert complete(line.split(" "), Known()) == found


def test_bash_completes_span_and_the_names_of_slurm_that_are_functions(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = """
eval "$(span alias --shell bash 2>/dev/null)"; eval "$(span completion bash)"
COMP_WORDS=(span cron p); COMP_CWORD=2; _span; echo "${COMPREPLY[@]}"
COMP_WORDS=(squeue -t RUN); COMP_CWORD=2; _span; echo "${COMPREPLY[@]}"
complete -p squeue
"""
    environment = {"PATH": path, "HOME": str(tmp_path), "SPAN_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["pause", "RUNNING", "complete -F _span squeue"], done.stderr
