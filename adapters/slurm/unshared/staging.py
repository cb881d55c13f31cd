"""Staging: copies `workdir` and the sources of `file_mounts` to a cluster that does not see the submitter's files.

They are packed on this machine when the job is submitted. Each content is sent once (ROOT/files/HASH.tar.gz, kept until
the last job that uses it is over), and each job gets its own copy in its run directory, so that no job changes
another's. The elements of an array share one copy, as they would share the folder itself. A later launch of the job
continues with the copy of the first.

If the nodes share no folder either, the files travel in the batch script (`inline_files`), and each run unpacks a fresh
copy.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, NamedTuple

from overspan.adapters.archives import ArchiveItem, describe_items, list_items, write_archive
from overspan.adapters.contract import Launch
from overspan.adapters.slurm.files.references import FOLDER, References
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.shell import make_write_error
from overspan.adapters.slurm.transports.transport import Transport
from overspan.adapters.slurm.unshared.inline_files import EMPTY, REMEDY, InlineFiles, is_brought, name_place
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Rejected
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, ReadyKind, TaskSpec

PART = 3 << 20
"""Bytes of an archive that one round trip sends."""
PART_SECONDS = 300.0
KEPT_DAYS = 30
"""Days after which an archive that no job has used is removed from the cluster."""
_MISSING = 44
_REMEMBERED = 10_000
_KEPT_PACKED = 4
"""Packed files in the cache, for following jobs with the same files."""


def find_sources(job: Job) -> tuple[str, ...]:
    """The submitter's paths that a job's tasks name, each once, in the order of the file.

    A batch script has none: its working directory is the cluster's own, as with sbatch.
    """
    found: list[str] = []
    if job.spec.origin.job:
        # What is submitted from inside a job names the cluster's own files, and never those of the daemon's machine.
        return ()
    for task in job.spec.tasks:
        if task.form is Form.RUN:
            found += [task.workdir] if task.workdir else []
            found += task.file_mounts.values()
    return tuple(dict.fromkeys(found))


def choose_local(paths: Sequence[str], here: str) -> tuple[str, ...]:
    """The paths that exist on this machine; others are the cluster's own.

    Raises InvalidRequest for a missing path below the submission's folder, which cannot be on the cluster either.
    """
    chosen = []
    for path in paths:
        if os.path.exists(path):
            chosen.append(path)
        elif here not in ("", "/") and (path == here or path.startswith(f"{here}/")):
            raise InvalidRequest(f"there is no {path} to send to the cluster", remedy="see `workdir` and `file_mounts`")
    return tuple(chosen)


def check_sources(job: Job, limit: int) -> None:
    """Raise InvalidRequest for a path that is missing, or larger than `limit` bytes."""
    for path in choose_local(find_sources(job), job.spec.origin.directory):
        list_items(path, limit)


def place_sources(job: Job, root: str, run: str) -> dict[str, str]:
    """By source: the folder on the cluster that contains its copy, under the source's own name.

    `run` is the name of the job's run directory; elements of an array use the array's.
    """
    if job.element is not None:
        run = f"{run.rpartition('-')[0]}-{job.element.array}"
    return {source: f"{root}/runs/{run}/files/{number}" for number, source in enumerate(find_sources(job))}


def apply_staged(job: Job, places: Mapping[str, str]) -> Job:
    """The job with the cluster's paths in place of the submitter's."""
    if not places:
        return job
    tasks = tuple(_move_task(task, places) if task.form is Form.RUN else task for task in job.spec.tasks)
    return replace(job, spec=replace(job.spec, tasks=tasks))


def _move_task(task: TaskSpec, places: Mapping[str, str]) -> TaskSpec:
    mounts = {target: places.get(source, source) for target, source in task.file_mounts.items()}
    return replace(task, workdir=places.get(task.workdir, task.workdir), file_mounts=mounts)


def preview_staged(job: Job, root: str) -> tuple[Job, str]:
    """The job as it would be submitted, for `span plan`, and comments about staged files.

    Raises InvalidRequest for missing paths.
    """
    places = place_sources(job, root, "N")
    sources = choose_local(list(places), job.spec.origin.directory)
    found = {source: _name_copy(places[source], source) for source in sources}
    lines = [f"# {source} travels to {place}\n" for source, place in found.items()]
    return apply_staged(job, found), "".join(lines)


def _name_copy(place: str, source: str) -> str:
    return f"{place}/{_name_top(source)}"


def _name_top(source: str) -> str:
    return os.path.basename(os.path.normpath(source))


def list_carried(job: Job) -> tuple[Job, tuple[str, ...]]:
    """The job with the paths of inline files on the node, and the sources of these.

    Raises InvalidRequest for a missing path, Rejected for a task that would not see its files.
    """
    sources = choose_local(find_sources(job), job.spec.origin.directory)
    for task in job.spec.tasks:
        if not {task.workdir, *task.file_mounts.values()}.isdisjoint(sources):
            _refuse_blind(task)
    places = {source: name_place(number, _name_top(source)) for number, source in enumerate(sources)}
    tasks = tuple(_start_apart(task) for task in apply_staged(job, places).spec.tasks)
    return replace(job, spec=replace(job.spec, tasks=tasks)) if sources else job, sources


def _refuse_blind(task: TaskSpec) -> None:
    """Refuse a task with a part that would not see its inline files. Raises Rejected."""
    what = "an image" if task.image else ""
    if task.ready is not None and task.ready.kind is ReadyKind.COMMAND:
        what = "`ready: command`"
    if what:
        raise Rejected(
            f"the task {task.name!r} has {what}, which does not see `workdir` and `file_mounts` that travel to nodes "
            "without a shared folder",
            remedy="set `root` of the cluster to a folder that the compute nodes share, or do without one of the two",
        )


def _start_apart(task: TaskSpec) -> TaskSpec:
    """The task in a working directory of its own if it has inline files, so that links of two jobs do not collide."""
    brought = any(map(is_brought, task.file_mounts.values()))
    return replace(task, workdir=EMPTY) if brought and not task.workdir else task


def preview_carried(job: Job) -> tuple[Job, InlineFiles | None, str]:
    """The job as it would be submitted to nodes that share no folder, for `span plan`, and comments about its files."""
    moved, sources = list_carried(job)
    lines = [f"# {source} travels behind the script\n" for source in sources]
    return moved, InlineFiles(preview=True) if sources else None, "".join(lines)


class Files:
    """Brings the files of launches to one cluster: by a shared folder, by staging, or inline in the script."""

    def __init__(self, transport: Transport, settings: Settings, references: References | None = None) -> None:
        limit = settings.max_staged << 20
        self._stager = None if settings.shared else Stager(transport, limit, settings.timeout, references)
        self._packer = None if settings.shared_root else InlinePacker(limit)

    async def bring(self, launch: Launch, root: str, run: str) -> tuple[Launch, InlineFiles | None]:
        """The launch with the paths of its files on the cluster, and its inline files.

        `root`, `run` and errors: see `Stager.stage` and `InlinePacker.pack`.
        """
        if self._packer is not None:
            job, inline = await asyncio.to_thread(self._packer.pack, launch.job)
            return replace(launch, job=job), inline
        if self._stager is None:
            return launch, None
        return await self._stager.stage(launch, root, run), None


class InlinePacker:
    """Packs files for nodes that share no folder; `limit` is in bytes for each path."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._packed: dict[str, InlineFiles] = {}

    def pack(self, job: Job) -> tuple[Job, InlineFiles | None]:
        """The job with the paths on its node, and its inline files; unchanged files come from the cache.

        Raises InvalidRequest and Rejected for files that cannot travel, OverspanError for files that change meanwhile.
        """
        moved, sources = list_carried(job)
        if not sources:
            return job, None
        items: list[ArchiveItem] = []
        for number, source in enumerate(sources):
            found = list_items(source, self._limit, REMEDY)
            items += [item._replace(name=f"{number}/{item.name}") for item in found]
        listed = describe_items(items)
        if listed not in self._packed:
            file = io.BytesIO()
            write_archive(items, file)
            self._packed[listed] = InlineFiles(file.getvalue())
        while len(self._packed) > _KEPT_PACKED:
            del self._packed[next(iter(self._packed))]
        return moved, self._packed[listed]


class _Copy(NamedTuple):
    """A staged copy for the run of that name, in the folder `place`."""

    root: str
    run: str
    place: str
    umask: int

    @property
    def references(self) -> str:
        """The file with the run's references."""
        return f"{self.root}/{FOLDER}/{self.run}"


class Stager:
    """Stages files on one cluster; `limit` is in bytes for each path."""

    def __init__(
        self, transport: Transport, limit: int, timeout: float = 60.0, references: References | None = None
    ) -> None:
        self._transport = transport
        self._references = references or References(transport, timeout)
        self._limit = limit
        self._timeout = timeout
        self._hashes: dict[str, str] = {}
        self._done: dict[str, str] = {}

    async def stage(self, launch: Launch, root: str, run: str) -> Launch:
        """Stage the launch's files, and return it with their paths on the cluster.

        `root` is the cluster's root as an absolute path, `run` the name of the job's run directory. Raises
        InvalidRequest for files that cannot be sent, OverspanError with the cluster's error if it cannot store them.
        """
        places = place_sources(launch.job, root, run)
        staged = await self._look(places)
        missing = [source for source in places if source not in staged]
        origin = launch.job.spec.origin
        for source in await asyncio.to_thread(choose_local, missing, origin.directory):
            self._references.note(run)
            await self._bring(source, _Copy(root, run, places[source], origin.umask))
            staged.append(source)
        self._done.update({places[source]: source for source in staged})
        _shorten(self._done)
        found = {source: _name_copy(places[source], source) for source in staged}
        return replace(launch, job=apply_staged(launch.job, found)) if found else launch

    async def _look(self, places: Mapping[str, str]) -> list[str]:
        """The paths that an earlier launch or another element has staged already."""
        if all(place in self._done for place in places.values()):
            return list(places)
        words = [INTERPRETER, "-c", 'for d; do [ -d "$d" ] && echo y || echo n; done', "sh", *places.values()]
        done = await self._transport.run(words, timeout=self._timeout)
        return [source for source, answer in zip(places, done.text.split(), strict=False) if answer == "y"]

    async def _bring(self, source: str, copy: _Copy) -> None:
        """Make a copy of a path."""
        with tempfile.TemporaryFile(prefix="overspan-") as file:
            name, packed = await asyncio.to_thread(self._pack, source, file)
            archive = f"{copy.root}/files/{name}.tar.gz"
            if await self._unpack(archive, copy):
                return
            if not packed:
                # The archive was sent before, but the cluster no longer has it.
                items = await asyncio.to_thread(list_items, source, self._limit)
                archive = f"{copy.root}/files/{await asyncio.to_thread(write_archive, items, file)}.tar.gz"
            await self._send(file, archive)
        if not await self._unpack(archive, copy):
            raise OverspanError(f"{archive} has gone from the cluster", remedy="it is tried again")

    def _pack(self, source: str, file: BinaryIO) -> tuple[str, bool]:
        """The hash of a path's content, and whether the archive was written; a content that is known is not packed."""
        items: Sequence[ArchiveItem] = list_items(source, self._limit)
        listed = describe_items(items)
        if listed in self._hashes:
            return self._hashes[listed], False
        name = write_archive(items, file)
        self._hashes[listed] = name
        _shorten(self._hashes)
        return name, True

    async def _unpack(self, archive: str, copy: _Copy) -> bool:
        """Unpack an archive on the cluster; False if it does not have it."""
        words = [INTERPRETER, "-c", _UNPACK, "sh", archive, copy.place, f"{copy.umask:04o}", copy.references]
        done = await self._transport.run(words, timeout=max(PART_SECONDS, self._timeout))
        if done.rc not in (0, _MISSING):
            raise make_write_error(copy.place, done.words)
        return done.rc == 0

    async def _send(self, file: BinaryIO, archive: str) -> None:
        """Send an archive in parts; it is renamed to its final name when it is complete."""
        file.seek(0)
        first = True
        while data := await asyncio.to_thread(file.read, PART):
            await self._run(render_part(archive, data, first), archive)
            first = False
        await self._run(render_end(archive), archive)

    async def _run(self, program: str, path: str) -> None:
        done = await self._transport.run([INTERPRETER], stdin=program.encode(), timeout=PART_SECONDS)
        if done.rc != 0:
            raise make_write_error(path, done.words)


_UNPACK = f"""\
[ -d "$2" ] && exit 0
umask 077
mkdir -p "${{4%/*}}/ended" && printf 'file\\t%s\\n' "$1" >>"$4"
[ -f "$1" ] || exit {_MISSING}
mkdir -p "${{2%/*}}" || exit 1
new=$(mktemp -d "$2.XXXXXX") || exit 1
touch "$1"
umask "$3"
tar -xzf "$1" -C "$new" --no-same-owner && mv -T "$new" "$2" && exit 0
rm -rf "$new"
[ -d "$2" ]
"""


def render_part(archive: str, data: bytes, first: bool) -> str:
    """A program that begins an archive, or appends to it."""
    text = base64.b64encode(data).decode()
    into = ">" if first else ">>"
    return (
        f'set -e; a={shlex.quote(archive)}; umask 077; mkdir -p "${{a%/*}}"\n'
        f"printf %s '{text}' | base64 -d {into}\"$a.part\"\n"
    )


def render_end(archive: str) -> str:
    """A program that checks a complete archive, gives it its name, and removes archives unused for KEPT_DAYS."""
    return (
        f'set -e; a={shlex.quote(archive)}; gzip -t "$a.part"; mv -f "$a.part" "$a"\n'
        f"find \"${{a%/*}}\" -maxdepth 1 -type f -name '*.tar.gz*' -mtime +{KEPT_DAYS} -delete 2>/dev/null || :\n"
    )


def _shorten(known: dict[str, str]) -> None:
    while len(known) > _REMEMBERED:
        del known[next(iter(known))]
