"""Plays the corpus: in the Slurm rig, and on Overspan's local cluster; keeps Slurm's answers as golden files."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.command_server import open_server
from tests.differential import player
from tests.differential.case import Case
from tests.rigs.slurm import SlurmRig, Variant

from overspan.bridge.runtime.core import kernel

if TYPE_CHECKING:
    from tests.system.conftest import Span

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
VERBS = ("sbatch", "srun", "salloc", "sattach", "squeue", "scancel", "scontrol", "sacct", "sinfo", "small_verbs")
TABLES = ("sbatch_options", "sbatch_scripts", "listings", "control", "steps")
# Both clusters are called local and are one node of this size in a partition of that name. Ids have five digits, so
# that no other number is one.
FIRST_ID = 70001
LOCAL = "clusters:\n  local: {kind: local, cpus: 12, memory: 12000M, gpus: 6}\n"
ONE_NODE = Variant(
    name="one-node",
    nodes=1,
    lines={
        "NodeName=": "NodeName=node1 CPUs=12 RealMemory=12000 Gres=gpu:6 State=UNKNOWN",
        "ClusterName=": "ClusterName=local",
        "PartitionName=main": "PartitionName=local Nodes=node1 Default=YES MaxTime=UNLIMITED State=UP",
        "PartitionName=short": "",
        # Memory is not booked: a job that asks for none would book all of it, and jobs run side by side here.
        "SelectTypeParameters=": "SelectTypeParameters=CR_Core",
        "FirstJobId=": f"FirstJobId={FIRST_ID}",
    },
    files={"/etc/slurm/gres.conf": "NodeName=node1 Name=gpu File=/dev/fakegpu[0-5]\n"},
)

Answers = dict[str, list[dict[str, Any]]]
_PLAYED = itertools.count()


@cache
def all_cases() -> list[Case]:
    """The corpus, each name once."""
    tables = (importlib.import_module(f"tests.differential.cases.{table}") for table in TABLES)
    cases: list[Case] = [case for table in tables for case in table.CASES]
    names = [case.name for case in cases]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise AssertionError(f"two cases have one name: {sorted(twice)}")
    return cases


def play_slurm(rig: SlurmRig, cases: Iterable[Case], workers: int = 8) -> Answers:
    """Slurm's answers, all of them from one command in the rig."""
    home = "/home/researcher"
    user = {"HOME": home, "USER": "researcher", "LOGNAME": "researcher", "SHELL": "/bin/bash"}
    env = {**user, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PATIENCE": "120"}
    # Some commands of Slurm would go on for minutes, which is their answer.
    env["COMMAND_SECONDS"] = "30"
    request = _request(cases, f"{home}/cases{next(_PLAYED)}", env, workers)
    rig.put("/run/player.py", (HERE / "player.py").read_text())
    rig.put("/run/cases.json", json.dumps(request))
    return _answers(rig.run(["python3", "/run/player.py", "/run/cases.json"]).stdout)


def play_span(span: Span, cases: Iterable[Case], workers: int = 3) -> Answers:
    """Overspan's answers, by `span VERB`, from one daemon."""
    if not span.state.exists():
        span.config.write_text(LOCAL)
        _begin_at(span, FIRST_ID)
    kept = re.compile("PATH|HOME|LANG|TZ|SHELL|USER|LOGNAME|SPAN_.*")
    env = {key: value for key, value in span.environment.items() if kept.fullmatch(key)}
    env |= {"PATIENCE": "180", "COMMAND_SECONDS": "150"}
    answers: Answers = {}
    with open_server(span.folder / f"commands{next(_PLAYED)}") as execute:
        request = _request(cases, str(span.folder / f"cases{next(_PLAYED)}"), env, workers)
        player.play_all(request, execute, answers.__setitem__)
    return answers


def write_golden(answers: Answers, cases: Iterable[Case], folder: Path = RECORDED) -> None:
    """One file for each verb, one line for each case: what was run, and what Slurm said."""
    lines: dict[str, list[str]] = {}
    for case in cases:
        document = {**case.to_document(), "answers": answers[case.name]}
        del document["alone"]
        lines.setdefault(case.verb, []).append(json.dumps(document, sort_keys=True))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    for verb, texts in lines.items():
        (folder / f"{verb}.jsonl").write_text("\n".join(texts) + "\n", encoding="utf-8")


@cache
def read_golden(folder: Path = RECORDED) -> dict[str, dict[str, Any]]:
    """The golden documents by the names of their cases."""
    found = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            found[document["name"]] = document
    return found


def _request(cases: Iterable[Case], folder: str, env: Mapping[str, str], workers: int) -> dict[str, Any]:
    documents = [case.to_document() for case in cases]
    return {"cases": documents, "folder": folder, "env": dict(env), "workers": workers}


def _answers(text: str) -> Answers:
    lines = (json.loads(line) for line in text.splitlines())
    return {line["case"]: line["steps"] for line in lines}


def _begin_at(span: Span, first: int) -> None:
    """Let the next job have this id, as FirstJobId does in Slurm."""
    pid = span.daemon
    span.run("shutdown")
    # It writes to its last moment.
    span.wait_until(lambda: _has_ended(pid), 20, "the daemon's end")
    with sqlite3.connect(span.state / "overspan.db") as database:
        database.execute("insert or replace into meta values ('next_id', ?)", (str(first),))
    database.close()


def _has_ended(pid: int) -> bool:
    process = kernel.read_process(pid)
    return process is None or process.state in "ZX"
