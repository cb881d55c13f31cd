"""Where a batch script reads and writes: which files its pod opens, and which the daemon writes on its own side. Pure.

What lies on a volume that both sides share is the pod's to write, by sbatch's patterns and modes. Everything else of a
script goes to its container's log, which the daemon keeps and copies into the file that the submitter looks for.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from overspan.adapters.kubernetes.manifests.names import name_host
from overspan.adapters.kubernetes.manifests.scripts import LOG, ScriptContext
from overspan.adapters.kubernetes.manifests.volumes import find_shared
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.job import Job
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT, FilenameFields, expand_filename
from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.runtime.core.streams import names_folder


class Outputs(NamedTuple):
    """The files of a script. Empty paths are none; `error` is empty where it goes with the output.

    `kept` is the file that the daemon writes from the container's log, `joined` an error file that it cannot write
    beside it: a log has both streams in one.
    """

    input: str = ""
    output: str = ""
    error: str = ""
    append: bool = False
    kept: str = ""
    joined: str = ""
    awaits_folder: bool = False
    """Whether a folder has the job's number in its name, so that it may be made after the submission."""

    def script_context(self) -> ScriptContext:
        """What the pod opens."""
        if not (self.input or self.output or self.error):
            return ScriptContext()
        return ScriptContext(
            input=self.input,
            output=self.output,
            error=self.error,
            mode=("append " if self.append else "") + ("await" if self.awaits_folder else ""),
        )


def runs_script(job: Job, task: TaskSpec) -> bool:
    """Whether a task is a batch script with a text: further components of a job run its steps alone."""
    return task.form is Form.BATCH and task.name == job.spec.tasks[0].name


def choose_outputs(job: Job, task: TaskSpec, settings: Settings) -> Outputs:
    """The files of a task, of its first node; none of what is no batch script."""
    if not runs_script(job, task):
        return Outputs()
    streams = task.streams
    output = expand(streams.output or _default(job, task), job, task)
    error = expand(streams.error, job, task) if streams.error else output
    source = expand(streams.input, job, task) if streams.input else ""
    found = Outputs(
        input=source if _is_here(source, settings) else "",
        append=streams.append,
        awaits_folder=names_folder(streams.output) or names_folder(streams.error),
    )
    if _is_written_here(output, settings):
        if error == output:
            return found._replace(output=output)
        if _is_written_here(error, settings):
            return found._replace(output=output, error=error)
        return found._replace(output=output, error=LOG, kept=error)
    if error == output:
        return found._replace(kept=output)
    if _is_written_here(error, settings):
        return found._replace(error=error, kept=output)
    return found._replace(kept=output, joined=error)


def expand(pattern: str, job: Job, task: TaskSpec) -> str:
    """The path that a pattern names for the first node of a task."""
    fields = FilenameFields(
        job=job.id,
        name=job.spec.name,
        user=job.spec.origin.user,
        host=name_host(job, task.name, 0),
        restarts=job.relaunches,
        array_job=None if job.element is None else job.element.array,
        element=None if job.element is None else job.element.index,
    )
    return posixpath.normpath(posixpath.join(job.spec.origin.directory or "/", expand_filename(pattern, fields)))


def _default(job: Job, task: TaskSpec) -> str:
    name = BATCH_DEFAULT if job.element is None else ARRAY_DEFAULT
    return posixpath.join((task.workdir or "/").replace("%", "%%"), name)


def _is_here(path: str, settings: Settings) -> bool:
    """Whether a pod has the file that the submitter means."""
    return path.startswith("/dev/") or find_shared(path, settings) is not None


def _is_written_here(path: str, settings: Settings) -> bool:
    if path.startswith("/dev/"):
        return True
    shared = find_shared(path, settings)
    return shared is not None and not shared[1].read_only
