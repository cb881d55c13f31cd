"""What a job of a pool leaves to its worker: set-up, files and image are the pool's, as with SkyPilot. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from overspan.bridge.model.spec import Form, JobSpec, TaskSpec

_LEFT_OUT: tuple[tuple[str, Any], ...] = (("setup", ""), ("file_mounts", {}), ("volumes", {}), ("image", ""))


def leave_to_worker(spec: JobSpec) -> tuple[JobSpec, tuple[str, ...]]:
    """The spec without what its worker has done already, and a note for each key that is left out."""
    notes: list[str] = []
    tasks = []
    for task in spec.tasks:
        empty = [*_LEFT_OUT, *([("workdir", "")] if task.form is Form.RUN else [])]
        names = [name for name, value in empty if getattr(task, name) != value]
        notes += [f"{name} has no effect in a pool: a worker has that of the pool's file" for name in names]
        tasks.append(_clear(task, dict(empty), names))
    return replace(spec, tasks=tuple(tasks)), tuple(dict.fromkeys(notes))


def _clear(task: TaskSpec, empty: dict[str, Any], names: list[str]) -> TaskSpec:
    return replace(task, **{name: empty[name] for name in names})
