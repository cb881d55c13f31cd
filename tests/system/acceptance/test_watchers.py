"""MJ23 on the local cluster: a watcher launches evaluations by the daemon's own socket."""

from __future__ import annotations

from tests.system.conftest import Span
from tests.system.watchers import train_and_evaluate, write_programs


def test_a_watcher_launches_an_evaluation_for_each_checkpoint(span: Span) -> None:
    folder = span.folder / "checkpoints"
    write_programs(folder)
    train_and_evaluate(span, str(folder))
