"""What srun knows of the allocation it is in: a few files in the run directory.

steps/allocation.json   the nodes, and how this program is started (0600)
steps/key               the job's key (0600)
steps/TASK.NODE         where that node's step daemon listens
steps/next.R            the number of launch R's next step
steps/R.jsonl           what is kept of its steps (see accounting.py)
steps/N.socket          where the srun of step N listens while it runs
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from overspan.bridge.model.allocations import is_held, is_kept, runs_daemon
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form

FORMAT = 1
KEY_SIZE = 32
_FOLDER = "steps"
# What belongs to one node or one rank, and not to the allocation.
_PLACED = frozenset(
    {
        *("OVERSPAN_TASK", "OVERSPAN_NODE_INDEX", "OVERSPAN_HOST", "OVERSPAN_ADDR", "OVERSPAN_NODE_KEY"),
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_PRIO_PROCESS"),
    }
)
_END = b'{"end":true}\n'
_SHARED_PREFIXES = ("SLURM_", "OVERSPAN_", "SKYPILOT_")


class Node(NamedTuple):
    """One node of an allocation; `served` tells that a step daemon runs there."""

    task: str
    number: int
    name: str
    address: str
    gpus: tuple[int, ...]
    served: bool


class Component(NamedTuple):
    """One component of a hetjob, or all of an ordinary job; `cpus` are those of a node, 0 where steps have no limit."""

    nodes: tuple[Node, ...]
    ntasks: int
    ntasks_per_node: int
    cpus: int


class Allocation(NamedTuple):
    """The nodes that a job holds, and the variables that all its steps find."""

    folder: str
    job: int
    name: str
    user: str
    array: Optional[tuple[int, int]]
    batch: bool
    components: tuple[Component, ...]
    environment: Mapping[str, str]
    launch: int = 0


class Endpoint(NamedTuple):
    """Where a step daemon listens."""

    address: str
    port: int


def own_program() -> tuple[str, ...]:
    """The words that start this program, to be followed by the name of an entry (`srun`, `stepd`)."""
    path = os.path.abspath(sys.argv[0])
    if path.endswith(".pyz"):
        return (sys.executable, "-I", "-S", path)
    return (sys.executable, "-m", "overspan.bridge.supervisor")


def describe_allocation(
    job: Job, environment: Mapping[str, str], names: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    """The document of a job that has its nodes; `names` are those of its members. Pure but for the program's words."""
    tasks = job.spec.tasks
    batch = tasks[0].form is Form.BATCH
    return {
        "format": FORMAT,
        "program": own_program(),
        "job": job.id,
        "launch": job.launch,
        "name": job.spec.name,
        "user": job.spec.origin.user,
        "array": None if job.element is None else [job.element.array, job.element.index],
        "batch": batch,
        "components": [
            {
                "nodes": [
                    {
                        "task": task.name,
                        "index": item.index,
                        "name": names[(task.name, item.index)],
                        "address": item.address,
                        "gpus": item.gpus,
                        "served": runs_daemon(task, item.index) or (batch and _is_held(job, item.index)),
                    }
                    for item in job.placements
                    if item.task == task.name
                ],
                "ntasks": task.ntasks or 0,
                "ntasks_per_node": task.ntasks_per_node or 0,
                "cpus": _count_cpus(job, task.name) if batch else 0,
            }
            for task in tasks
        ],
        "environment": {
            name: value
            for name, value in environment.items()
            if name.startswith(_SHARED_PREFIXES) and name not in _PLACED
        },
    }


def _is_held(job: Job, index: int) -> bool:
    return index == 0 and (is_held(job.spec.tasks[0]) or is_kept(job.spec.tasks[0]))


def _count_cpus(job: Job, name: str) -> int:
    """CPUs of a node as its steps count them; 0 where they were not asked for in tasks."""
    spec = job.spec_of(name)
    if spec.ntasks is None and spec.ntasks_per_node is None and spec.cpus_per_task is None:
        return 0
    each = spec.ntasks_per_node or -(-(spec.ntasks or 1) // spec.num_nodes)
    return each * (spec.cpus_per_task or 1)


def write_allocation(run_dir: str, document: Mapping[str, Any]) -> None:
    """Leave the document, and the job's key where there is none yet. Raises OSError."""
    folder = os.path.join(run_dir, _FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    key = os.path.join(folder, "key")
    if not os.path.exists(key):
        _write(key, os.urandom(KEY_SIZE).hex())
    _write(os.path.join(folder, "allocation.json"), json.dumps(document, separators=(",", ":")))


def read_allocation(run_dir: str) -> Allocation:
    """The allocation of a run directory. Raises OSError where there is none, ValueError for another format."""
    folder = os.path.join(run_dir, _FOLDER)
    with open(os.path.join(folder, "allocation.json"), encoding="utf-8") as file:
        document = json.load(file)
    if document.get("format") != FORMAT:
        raise ValueError(f"{folder}/allocation.json has format {document.get('format')}")
    components = tuple(
        Component(
            tuple(
                Node(row["task"], row["index"], row["name"], row["address"], tuple(row["gpus"]), row["served"])
                for row in part["nodes"]
            ),
            part["ntasks"],
            part["ntasks_per_node"],
            part["cpus"],
        )
        for part in document["components"]
    )
    array = document["array"]
    return Allocation(
        folder,
        document["job"],
        document["name"],
        document["user"],
        None if array is None else (array[0], array[1]),
        document["batch"],
        components,
        document["environment"],
        document.get("launch", 0),
    )


def read_key(folder: str) -> bytes:
    """The job's key; `folder` is that of the allocation. Raises OSError."""
    with open(os.path.join(folder, "key"), "rb") as file:
        return bytes.fromhex(file.read().decode())


def draw_step(folder: str, launch: int) -> int:
    """The number of a launch's new step: 0, 1, 2... Raises OSError."""
    fd = os.open(os.path.join(folder, f"next.{launch}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%d" % (number + 1), 0)
        return number
    finally:
        os.close(fd)


def announce(folder: str, task: str, index: int, endpoint: Endpoint) -> None:
    """Say where this node's step daemon listens. Raises OSError."""
    _write(os.path.join(folder, f"{task}.{index}"), json.dumps([endpoint.address, endpoint.port]))


def find_endpoint(folder: str, node: Node) -> Optional[Endpoint]:
    """Where a node's step daemon listens; None while it has not said so."""
    try:
        with open(os.path.join(folder, f"{node.task}.{node.number}"), encoding="utf-8") as file:
            address, port = json.load(file)
    except (OSError, ValueError):
        return None
    return Endpoint(str(address), int(port))


def is_over(folder: str) -> bool:
    """Whether the job's newest launch has come to its end; `folder` is that of the allocation."""
    run_dir = os.path.dirname(folder)
    launches = [name.split(".")[1] for name in os.listdir(run_dir) if name.startswith("grant.")]
    numbers = [int(number) for number in launches if number.isdigit()]
    try:
        with open(os.path.join(run_dir, f"journal.{max(numbers, default=0)}.jsonl"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_END)))
            return file.read() == _END
    except FileNotFoundError:
        return False


def _write(path: str, text: str) -> None:
    part = f"{path}.part{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    os.replace(part, path)
