"""Standard streams of a node run: their files, and the list of them that `span logs` follows."""

from __future__ import annotations

import json
import os
import re

from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.job import Job
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT, FilenameFields, expand_filename
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import Form
from overspan.bridge.runtime.core.node_records import format_key
from overspan.bridge.runtime.core.run_directory import RunDirectory

_NONE = "none"


class StreamPaths(NamedTuple):
    """Absolute paths; an empty one is the null device. Equal output and error share one file.

    `folders_awaited` tells that the folder of an output file has the job's id in its name.
    """

    input: str
    output: str
    error: str
    append: bool
    folders_awaited: bool = False


class NodeKey(NamedTuple):
    """One run of one node."""

    task: str
    node: int
    attempt: int
    run: int

    def __str__(self) -> str:
        return format_key(*self)


def choose_paths(job: Job, key: NodeKey, directory: RunDirectory, cwd: str, host: str) -> StreamPaths:
    """The files of a node run: what sbatch's patterns say, else one file a stream in the run directory.

    A file that a later attempt writes again is appended to, so that each attempt keeps its own part.
    """
    spec = job.spec_of(key.task)
    streams = spec.streams
    fields = FilenameFields(
        job=job.id,
        name=job.spec.name,
        user=job.spec.origin.user,
        host=host,
        node=key.node,
        task=key.node,
        restarts=job.relaunches,
        array_job=None if job.element is None else job.element.array,
        element=None if job.element is None else job.element.index,
    )

    def resolve(pattern: str) -> str:
        if pattern == _NONE:
            return ""
        return join_path(cwd, expand_filename(pattern, fields))

    source = resolve(streams.input) if streams.input else ""
    again = streams.append or key.attempt > 0 or key.run > 0 or job.relaunches > 0
    if streams.output or spec.form is Form.BATCH:
        output = resolve(streams.output or (BATCH_DEFAULT if job.element is None else ARRAY_DEFAULT))
        awaited = names_folder(streams.output) or names_folder(streams.error)
        return StreamPaths(source, output, resolve(streams.error) if streams.error else output, again, awaited)
    stem = os.path.join(directory.logs(), str(key))
    return StreamPaths(source, f"{stem}.out", resolve(streams.error) if streams.error else f"{stem}.err", again)


def names_folder(pattern: str) -> bool:
    """Whether a pattern has a job's or element's number in its folder: %j, %A or %a, with a width or without."""
    folder = os.path.dirname(pattern)
    return "\\" not in pattern and any(
        letter in "jAa" for letter in re.findall(r"%(?:%|[0-9]*([A-Za-z]))", folder) if letter
    )


def daemon_paths(key: NodeKey, directory: RunDirectory) -> StreamPaths:
    """The file of a step daemon's complaints; it is not among the job's streams."""
    path = os.path.join(directory.logs(), f"{key}.stepd")
    return StreamPaths("", path, path, True)


def record_paths(directory: RunDirectory, key: NodeKey, paths: StreamPaths) -> None:
    """Add the node run's files to streams.jsonl, with the place where its part of each begins."""
    lines = []
    for stream, path in (("output", paths.output), ("error", paths.error)):
        if not path or (stream == "error" and paths.error == paths.output):
            continue
        line = {"task": key.task, "node": key.node, "attempt": key.attempt, "run": key.run, "stream": stream}
        lines.append(json.dumps({**line, "path": path, "start": _size(path) if paths.append else 0}) + "\n")
    fd = os.open(directory.streams, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, "".join(lines).encode())
    finally:
        os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
