"""What a worker changes in the plan of a launch where it does not see the daemon's folder: paths and variables.

The machine of the submission is another one, so what describes it (PATH, HOME and the like) is this node's. A working
directory that is not here is the worker's own, and an output file whose folder is not here is kept by the daemon alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT

_MACHINE = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "HOSTNAME", "PWD", "OLDPWD")
_OWN = ("OVERSPAN_", "SKYPILOT_", "SLURM_", "SPAN_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_BATCH = "batch"


def move_here(job: Mapping[str, Any], folder: str, environment: Mapping[str, str], cwd: str) -> dict[str, Any]:
    """The document of a job as it is run here: `folder` is its run directory, `environment` and `cwd` the worker's."""
    spec = dict(job["spec"])
    origin = dict(spec.get("origin") or {})
    directory = _find_directory(str(origin.get("directory") or ""), cwd)
    spec["tasks"] = [_move_task(task, directory, folder, job.get("element") is not None) for task in spec["tasks"]]
    spec["origin"] = {**origin, "directory": directory}
    spec["environment"] = _move_variables(spec.get("environment") or {}, environment)
    return {**job, "spec": spec}


def _find_directory(path: str, cwd: str) -> str:
    return path if path and os.path.isdir(path) else cwd


def _move_task(task: Mapping[str, Any], directory: str, folder: str, element: bool) -> dict[str, Any]:
    task = dict(task)
    if task.get("workdir"):
        directory = task["workdir"] = _find_directory(str(task["workdir"]), directory)
    streams = dict(task.get("streams") or {})
    default = (ARRAY_DEFAULT if element else BATCH_DEFAULT) if task.get("form") == _BATCH else ""
    for name, pattern in (("output", streams.get("output") or default), ("error", streams.get("error") or "")):
        if pattern and pattern != "none" and not _is_writable(join_path(directory, pattern)):
            streams[name] = os.path.join(folder, os.path.basename(pattern))
    return {**task, "streams": streams}


def _is_writable(path: str) -> bool:
    """Whether a file can be made there. A folder with a pattern in its name is made later, or is not."""
    return os.access(os.path.dirname(path), os.W_OK)


def _move_variables(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    here = {name: value for name, value in own.items() if not name.startswith(_OWN)}
    return {**here, **{name: value for name, value in given.items() if name not in _MACHINE}}
