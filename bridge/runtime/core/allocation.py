"""The allocation that srun runs in, read from a few files in the run directory.

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
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple

FORMAT = 1
KEY_SIZE = 32
_FOLDER = "steps"
_END = b'{"end":true}\n'


class AllocatedNode(NamedTuple):
    """One node of an allocation; `served` tells that a step daemon runs there."""

    task: str
    number: int
    name: str
    address: str
    gpus: tuple[int, ...]
    served: bool
    port: int = 0
    """Where its step daemon listens; 0 where it says so itself."""


class AllocatedComponent(NamedTuple):
    """One component of a hetjob, or all of an ordinary job; `cpus` are those of a node, 0 where steps have no limit."""

    nodes: tuple[AllocatedNode, ...]
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
    components: tuple[AllocatedComponent, ...]
    environment: Mapping[str, str]
    launch: int = 0
    pods: bool = False
    """Whether each node is a pod, of which nothing but its own processes is seen."""


class Endpoint(NamedTuple):
    """Where a step daemon listens."""

    address: str
    port: int


def own_program() -> tuple[str, ...]:
    """The words that start this program, to be followed by the name of an entry (`srun`, `stepd`)."""
    path = os.path.abspath(sys.argv[0])
    if path.endswith(".pyz"):
        return (sys.executable, "-I", "-S", path)
    return (sys.executable, "-m", "overspan.bridge.runtime")


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
        return parse_allocation(json.load(file), folder)


def parse_allocation(document: Mapping[str, Any], folder: str) -> Allocation:
    """An allocation from its document; `folder` is that of its steps. Raises ValueError for another format."""
    if document.get("format") != FORMAT:
        raise ValueError(f"{folder}/allocation.json has format {document.get('format')}")
    components = tuple(
        AllocatedComponent(
            tuple(_parse_node(row) for row in part["nodes"]), part["ntasks"], part["ntasks_per_node"], part["cpus"]
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
        document.get("pods", False),
    )


def _parse_node(row: Mapping[str, Any]) -> AllocatedNode:
    gpus = tuple(row["gpus"])
    return AllocatedNode(
        row["task"], row["index"], row["name"], row["address"], gpus, row["served"], row.get("port", 0)
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


def find_endpoint(folder: str, node: AllocatedNode) -> Optional[Endpoint]:
    """Where a node's step daemon listens; None while it has not said so."""
    if node.port:
        return Endpoint(node.address, node.port)
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
