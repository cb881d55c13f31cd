"""What squeue says of a job."""

from __future__ import annotations

from tests.unit.adapters.slurm.samples import NOW

from overspan.adapters.slurm.commands.states import read_state
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.observation.projection import NativeView

NODES = ("n1", "n2")


START, END = NOW + 10, NOW + 70


def view(state: str, reason: str = "None", status: tuple[int, int] = (0, 0), **changes: object) -> NativeView:
    from overspan.adapters.slurm.commands.listings import ExitStatus

    outcome = judge(read_state(state), reason, ExitStatus(*status))
    running = outcome.phase is not Phase.QUEUED
    facts: dict[str, object] = {
        "nodes": NODES if running else (),
        "start": START if running else None,
        "end": END if outcome.phase is Phase.ENDED else None,
        **changes,
    }
    return NativeView(outcome=outcome, reason=reason, limit=None, asked=NOW + 100, **facts)  # type: ignore[arg-type]
