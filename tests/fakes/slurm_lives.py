"""Lives of jobs that are the same on a real Slurm and on the fake one: what is submitted, and what is done when.

`record_slurm.py` plays them on the real one and writes `slurm_timelines.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes.slurm_jobs import Behaviour

TIMELINES = Path(__file__).with_name("slurm_timelines.json")
KILL_WAIT = 5
QUEUE_FORMAT = "JobArrayID:|,State:|,Reason:|,RestartCnt:|,NodeList:|,SubmitTime:|"
ACCOUNTS_FORMAT = "JobID,State,Reason,ExitCode,NodeList"
STUBBORN = "trap '' TERM; while :; do sleep 0.2; done"
DIES = Behaviour(None)
IGNORES = Behaviour(None, on_term=None)
ON_1, ON_2, ON_3 = (("-w", f"node{number}") for number in (1, 2, 3))


class Step(NamedTuple):
    """A command, and when it is given, in seconds after the submission; `{}` is the job."""

    at: float
    words: tuple[str, ...]


@dataclass(frozen=True)
class Life:
    """One submission and what is done to it; `stage`: those of one stage are played beside each other."""

    name: str
    script: str
    behaviour: Behaviour
    options: tuple[str, ...] = ON_1
    steps: tuple[Step, ...] = ()
    seconds: float = 12
    stage: int = 1
    tolerance: float = 5.0
    """Seconds by which the fake may differ."""
    thaw: float = 0.0
    """When a node that was frozen before answers again, in seconds after the beginning."""


def _scontrol(at: float, *words: str) -> Step:
    return Step(at, ("scontrol", *words))


def _down(at: float, node: str) -> Step:
    return _scontrol(at, "update", f"NodeName={node}", "State=DOWN", "Reason=test")


def _drain(at: float) -> Step:
    return _scontrol(at, "update", "NodeName=node1", "State=DRAIN", "Reason=test")


def _resume(at: float, node: str) -> Step:
    return _scontrol(at, "update", f"NodeName={node}", "State=RESUME")


LIVES: Sequence[Life] = (
    Life("plain", "sleep 3", Behaviour(3)),
    Life("exit-code", "sleep 1; exit 7", Behaviour(1, 7)),
    Life("killed", "sleep 1; kill -9 $$", Behaviour(1, signal=9)),
    Life("held", "sleep 1", Behaviour(1), (*ON_1, "--hold"), (_scontrol(3, "release", "{}"),)),
    Life("hold", "sleep 1", Behaviour(1), (*ON_1, "--begin=now+60"), (_scontrol(3, "hold", "{}"),)),
    Life("begin", "sleep 1", Behaviour(1), (*ON_1, "--begin=now+5"), seconds=15),
    Life("cancel", "exec sleep 300", DIES, steps=(Step(3, ("scancel", "{}")),)),
    Life("cancel-held", "true", DIES, (*ON_1, "--hold"), (Step(3, ("scancel", "{}")),)),
    Life("cancel-waiting", "true", DIES, (*ON_1, "--begin=now+60"), (Step(3, ("scancel", "{}")),)),
    Life("cancel-ignored", STUBBORN, IGNORES, steps=(Step(3, ("scancel", "{}")),), seconds=20),
    Life("term", "exec sleep 300", DIES, steps=(Step(3, ("scancel", "--signal=TERM", "--full", "{}")),)),
    Life("requeue", "exec sleep 300", DIES, steps=(_scontrol(3, "requeue", "{}"),), seconds=140, tolerance=8),
    Life("requeue-ignored", STUBBORN, IGNORES, steps=(_scontrol(3, "requeue", "{}"),), seconds=140, tolerance=8),
    Life("requeue-hold", STUBBORN, IGNORES, steps=(_scontrol(3, "requeuehold", "{}"),), seconds=20),
    Life(
        "requeue-cancel",
        STUBBORN,
        IGNORES,
        steps=(_scontrol(3, "requeue", "{}"), Step(5, ("scancel", "{}"))),
        seconds=20,
    ),
    Life(
        "requeue-now",
        "exec sleep 300",
        DIES,
        steps=(_scontrol(3, "requeue", "{}"), _scontrol(9, "update", "JobId={}", "StartTime=now")),
        seconds=20,
    ),
    Life("requeue-ended", "true", Behaviour(0), steps=(_scontrol(6, "requeue", "{}"),), seconds=15),
    Life("no-requeue", "exec sleep 300", DIES, (*ON_1, "--no-requeue"), (_scontrol(3, "requeue", "{}"),)),
    Life("time-limit", STUBBORN, IGNORES, (*ON_1, "--time=1"), seconds=110, tolerance=30),
    Life("after", "sleep 1", Behaviour(1), (*ON_1, "--dependency=afterok:1"), seconds=15),
    Life("after-failed", "sleep 1", Behaviour(1), (*ON_1, "--dependency=afterok:2"), seconds=15),
    Life("array", "sleep 3", Behaviour(3), (*ON_2, "--array=0-3%2"), seconds=20),
    Life(
        "array-cancel",
        "exec sleep 300",
        DIES,
        (*ON_2, "--array=0-3%1"),
        (Step(4, ("scancel", "{}_1")), Step(7, ("scancel", "{}"))),
        seconds=20,
    ),
    Life("array-cancel-held", "true", DIES, (*ON_2, "--array=0-3", "--hold"), (Step(4, ("scancel", "{}")),)),
    Life("array-requeue", STUBBORN, IGNORES, (*ON_2, "--array=0-2%1"), (_scontrol(4, "requeue", "{}_0"),), seconds=15),
    Life("hetjob", "sleep 4", Behaviour(4), ("-n1", ":", "-n1"), seconds=20, stage=2),
    Life("down", "exec sleep 300", DIES, ON_3, (_down(3, "node3"), _resume(12, "node3")), 140, 3, 8),
    Life("down-no-requeue", "exec sleep 300", DIES, (*ON_2, "--no-requeue"), (_down(5, "node2"),), 15, 3),
    Life("wait-for-down", "sleep 1", Behaviour(1), (*ON_2, "--begin=now+8"), (_resume(20, "node2"),), 30, 3),
    Life(
        "wait-for-drained", "sleep 1", Behaviour(1), (*ON_1, "--begin=now+6"), (_drain(2), _resume(14, "node1")), 25, 3
    ),
    Life("wait-for-any", "sleep 1", Behaviour(1), ("-N3", "--begin=now+6"), seconds=30, stage=3),
    Life("prolog-fails", "sleep 1", Behaviour(1, launch="prolog"), ON_3, (_resume(20, "node3"),), 30, 4),
    Life("silent", "sleep 1", Behaviour(1, launch="silent"), ON_2, (), 200, 5, thaw=60),
)


def read_timelines() -> Mapping[str, Any]:
    """What the real Slurm did, by the name of the life."""
    found: Mapping[str, Any] = json.loads(TIMELINES.read_text())
    return found
