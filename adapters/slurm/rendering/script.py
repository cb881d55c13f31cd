"""Renders a single job for sbatch: the command line, the script, and variables and secrets that must be in neither.

A batch script is passed on unchanged. The command line adds Overspan's token, the options of the original sbatch
command, and changes by later orders. A job file's task becomes a script with #SBATCH lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from overspan.adapters.slurm.access.allocations import HOLDING, OWN_OPTIONS, hold_command
from overspan.adapters.slurm.commands.options import (
    Options,
    lay_over,
    list_components,
    native_options,
    render_directives,
    render_words,
)
from overspan.adapters.slurm.rendering.images import PYXIS, Container, ImagePlace, make_container, split_options
from overspan.adapters.slurm.rendering.node_resources import (
    choose_gpus,
    count_processes,
    render_gres,
    render_memory,
    round_resources,
)
from overspan.adapters.slurm.rendering.task_script import MAX_TEXT, Surroundings, render_body
from overspan.adapters.slurm.submission.dependencies import join_dependencies, render_dependency
from overspan.adapters.slurm.unshared.inline_files import SECRETS, InlineFiles, check_export, is_brought
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.durations import format_elapsed_long
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.ids import IndexRange, collapse, format_array_indices
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, JobNeed, TaskSpec

TOKEN_MARK = "overspan="
"""The prefix of the token in a job's comment."""
_TOKEN = re.compile(rf"(?:^|[\s=]){TOKEN_MARK}([^\s'\"]+)")
_LAUNCH = re.compile(r"[^-]+-(\d+)-(\d+)")
"""The job's id and the launch's number in a token."""
_ADDED_BY_EXPORT = ("SLURM_EXPORT_ENV", "SLURM_GET_USER_ENV")


@dataclass(frozen=True)
class RenderContext:
    """What rendering a launch needs besides the job.

    `native_ids` are the dependencies that Slurm itself waits for. `gpu_kinds` are the cluster's names of GPU types, and
    `gpu_counts` how many of each its largest node has. `secrets_path` and `script_path` are paths on the cluster;
    without `secrets_path` the secrets travel as a variable. `held` submits the job held. `elements` are those of a
    native array, as job ids by index, and `throttle` how many of them may run at once; None for no array. `containers`
    is the cluster's container runtime; empty if not set. `inline` are files that travel in the script.
    """

    token: str
    native_ids: Mapping[JobNeed, str] = field(default_factory=dict)
    gpu_kinds: tuple[str, ...] = ()
    gpu_counts: Mapping[str, int] = field(default_factory=dict)
    secrets_path: str = ""
    script_path: str = ""
    run_dir: str = ""
    held: bool = False
    containers: str = ""
    elements: Mapping[int, int] | None = None
    throttle: int | None = None
    inline: InlineFiles | None = None


@dataclass(frozen=True)
class BatchSubmission:
    """What to submit: `argv` reads `script` from standard input, or from `script_path` where that is not empty.

    A script with arguments has to be a file: sbatch opens /dev/stdin by its name, which fails if that is a socket, as
    under sshd. `secrets` is the text of a 0600 file at the context's path, written first. `variables` go into the
    environment of the sbatch process, never into its words. `release`: the script has a hold that an order has ended,
    so the job is released after its submission.
    """

    argv: tuple[str, ...]
    script: str
    script_path: str = ""
    secrets: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    release: bool = False


def mark_comment(comment: str, token: str) -> str:
    """The user's comment, followed by the token."""
    return f"{comment} {TOKEN_MARK}{token}" if comment else f"{TOKEN_MARK}{token}"


def find_token(comment: str) -> str:
    """The token in a comment; empty when there is none."""
    found = _TOKEN.findall(comment)
    return found[-1] if found else ""


def list_tokens(text: str) -> list[str]:
    """The tokens in a comment or in a submit line, which sacct has even where comments are not stored."""
    return _TOKEN.findall(text)


def names_launch(text: str, jobs: Collection[int], launches: range) -> bool:
    """Whether a comment or a submit line has the token of one of these launches of one of these jobs."""
    return any(job in jobs and launch in launches for job, launch in _list_launches(text))


def names_another(text: str, jobs: Collection[int], launches: range) -> bool:
    """Whether a comment or a submit line has the token of a launch, and of none of these."""
    return bool(_list_launches(text)) and not names_launch(text, jobs, launches)


@lru_cache(maxsize=1024)
def _list_launches(text: str) -> tuple[tuple[int, int], ...]:
    # Cached: each poll parses a comment several times, and all elements of an array have the same one.
    found = map(_LAUNCH.match, list_tokens(text))
    return tuple((int(match[1]), int(match[2])) for match in found if match)


def split_comment(comment: str) -> str:
    """The user's own part of a comment."""
    return _TOKEN.sub("", comment).strip()


def render_job(job: Job, setting: RenderContext) -> BatchSubmission:
    """The submission of a batch script or of a single task. Raises InvalidRequest."""
    if all(task.form is Form.BATCH for task in job.spec.tasks):
        return _render_batch(job, setting)
    if len(job.spec.tasks) > 1:
        raise InvalidRequest("a job of several tasks is not a single script", remedy="render it as a group")
    return _render_task(job, job.spec.tasks[0], setting)


# --- batch scripts ---------------------------------------------------------------------------------------------------


def _render_batch(job: Job, setting: RenderContext) -> BatchSubmission:
    task, command = job.spec.tasks[0], job.spec.origin.command
    held = is_allocation(task)
    first, *others = list_components(hold_command(command) if held else command, job.spec.script_options)
    first.update(OWN_OPTIONS if held else {})
    added = {"job-name": job.spec.name, "chdir": task.workdir, **_changed_orders(job, setting)}
    options = {**first, **{name: value for name, value in added.items() if value is not None}}
    options.pop("hold", None)
    if setting.held or job.held:
        options["hold"] = ""
    options["comment"] = mark_comment(job.spec.comment, setting.token)
    words = ["sbatch", "--parsable", *render_words(options)]
    for component in others:
        words += [":", *render_words(component)]
    words += _name_script(task, setting)
    # The script that holds an allocation only waits, and needs no variables.
    variables = {} if held else {**job.spec.environment, **task.env}
    # The command line cannot undo a hold in an #SBATCH line.
    release = job.spec.hold and not job.held and not setting.held
    return BatchSubmission(
        argv=tuple(words),
        script=HOLDING if held else task.run,
        script_path=setting.script_path if task.args else "",
        variables={name: value for name, value in variables.items() if name not in _ADDED_BY_EXPORT},
        release=release,
    )


def _name_script(task: TaskSpec, setting: RenderContext) -> tuple[str, ...]:
    if task.args and not setting.script_path:
        raise InvalidRequest("a script with arguments needs a place on the cluster", remedy="set the cluster's `root`")
    return (setting.script_path, *task.args) if task.args else ()


def _changed_orders(job: Job, setting: RenderContext) -> dict[str, str]:
    """Options that override the script on the command line: times as absolute times, and changes by orders."""
    spec, task = job.spec, job.tasks[0]
    found: dict[str, str] = {}
    if spec.dependency.needs or job.dependency.needs:
        # The script's own --dependency has Overspan's ids; even an empty value replaces it.
        found["dependency"] = render_dependency(job.dependency, setting.native_ids)
    if job.begin is not None or spec.begin is not None:
        found["begin"] = "now" if job.begin is None else render_instant(job.begin)
    if spec.deadline is not None:
        found["deadline"] = render_instant(spec.deadline)
    if task.time is not None:
        found["time"] = render_limit(task.time)
    if job.nice != spec.nice:
        found["nice"] = str(job.nice)
    if job.priority is not None and job.priority != spec.priority:
        found["priority"] = str(job.priority)
    array = _render_array(job, setting)
    if array and not (job.element is None and _is_whole(job)):
        found["array"] = array
    return found


def _is_whole(job: Job) -> bool:
    spec, now = job.spec.array, job.array
    return spec is not None and now is not None and now.waiting == spec.ranges and now.throttle == spec.throttle


# --- tasks of job files ----------------------------------------------------------------------------------------------


def _render_task(job: Job, task: TaskSpec, setting: RenderContext) -> BatchSubmission:
    rounded = round_resources(task, choose_gpus(task, setting.gpu_kinds, setting.gpu_counts), setting.gpu_kinds)
    native = native_options(job.spec, task)
    container, own = _choose_container(job, task, native.options, setting)
    derived = _derive_options(job, task, setting)
    laid = lay_over(derived, own, "`slurm:`")
    options = dict(laid.options)
    notes = [*rounded.notes, *native.conflicts, *laid.conflicts]
    dependency = join_dependencies(derived.get("dependency", ""), own.get("dependency", ""))
    if dependency is None:
        raise InvalidRequest(
            "`needs:` and the sbatch option --dependency cannot be joined: one asks for all, the other for any",
            remedy="write one of the two",
        )
    if dependency:
        options["dependency"] = dependency
        notes = [note for note in notes if "--dependency" not in note]
    comment = options.pop("comment", "") or job.spec.comment
    lines, rest = render_directives(options)
    place = Surroundings(setting.secrets_path, setting.run_dir, container, setting.elements, setting.inline)
    body = render_body(job, task, place)
    script = "\n".join(["#!/bin/bash", *lines, "", body])
    tail = {**rest, "comment": mark_comment(comment, setting.token)}
    return BatchSubmission(
        argv=("sbatch", "--parsable", *render_words(tail), *_name_script(task, setting)),
        script=script,
        script_path=setting.script_path if task.args else "",
        secrets=render_secrets(task.secrets) if setting.secrets_path else "",
        variables={**job.spec.environment, **({} if setting.secrets_path else _send_secrets(task, options))},
        notes=tuple(notes),
    )


def _send_secrets(task: TaskSpec, options: Options) -> dict[str, str]:
    """The variable with a task's secrets, for a job without a shared folder. InvalidRequest if they are too long."""
    text = render_secrets(task.secrets)
    if not text:
        return {}
    check_export(options)
    if len(text.encode("utf-8", "surrogateescape")) > MAX_TEXT:
        raise InvalidRequest(
            f"`secrets:` of the task {task.name!r} are longer than {MAX_TEXT // 1024} KiB, which a variable may have",
            remedy="put large ones into files on the nodes that only you can read",
        )
    return {SECRETS: text}


def _choose_container(
    job: Job, task: TaskSpec, options: Options, setting: RenderContext
) -> tuple[Container | None, Options]:
    """How the task runs in its image, and its native options without those about the container."""
    if not task.image:
        return None, options
    about, own = split_options(options)
    place = ImagePlace(setting.containers, task.workdir or job.spec.origin.directory, setting.run_dir)
    return make_container(task, about, place), own


def _derive_options(job: Job, task: TaskSpec, setting: RenderContext) -> dict[str, str]:
    """A task's neutral keys as options of sbatch."""
    rounded = round_resources(task, choose_gpus(task, setting.gpu_kinds, setting.gpu_counts), setting.gpu_kinds)
    need = rounded.need
    processes = count_processes(task)
    options = {"job-name": job.spec.name}
    # A working directory that travels in the script does not exist yet when Slurm starts the script.
    workdir = "" if is_brought(task.workdir) else task.workdir
    if workdir or job.spec.origin.directory:
        options["chdir"] = workdir or job.spec.origin.directory
    options |= {"nodes": str(task.num_nodes), "ntasks-per-node": str(processes)}
    if task.ntasks:
        options["ntasks"] = str(task.ntasks)
    if task.cpus_per_task or task.resources.cpus or need.cpus > processes:
        options["cpus-per-task"] = str(task.cpus_per_task or -(-need.cpus // processes))
    if task.resources.memory_mib_per_cpu is not None:
        options["mem-per-cpu"] = render_memory(task.resources.memory_mib_per_cpu)
    elif need.memory is not None:
        options["mem"] = render_memory(need.memory)
    if render_gres(need):
        options["gres"] = render_gres(need)
    return {**options, **_derive_orders(job, task, setting)}


def _derive_orders(job: Job, task: TaskSpec, setting: RenderContext) -> dict[str, str]:
    options: dict[str, str] = {}
    seconds = job.task(task.name).time if job.task(task.name).time is not None else task.time
    if seconds is not None:
        options["time"] = render_limit(seconds)
    if task.signal is not None:
        # Without a step only the batch shell can get the signal (sbatch(1), --signal); by then it is the program.
        batch = "" if _has_step(task, setting) and not task.signal.batch_only else "B:"
        options["signal"] = f"{batch}{task.signal.name}@{task.signal.seconds}"
    options.update(render_queue_options(job, setting.held or job.held))
    if job.spec.requeue is not None:
        options["requeue" if job.spec.requeue else "no-requeue"] = ""
    array = _render_array(job, setting)
    if array:
        options["array"] = array
    dependency = render_dependency(job.dependency, setting.native_ids)
    if dependency:
        options["dependency"] = dependency
    if dependency and job.spec.kill_on_invalid_dep is not None:
        options["kill-on-invalid-dep"] = "yes" if job.spec.kill_on_invalid_dep else "no"
    return {**options, **_derive_streams(task)}


def _has_step(task: TaskSpec, setting: RenderContext) -> bool:
    """Whether the script starts the program by srun."""
    return task.num_nodes > 1 or bool(task.image and setting.containers == PYXIS)


def _derive_streams(task: TaskSpec) -> Options:
    streams = task.streams
    named = {"output": streams.output, "error": streams.error, "input": streams.input}
    options = {name: pattern for name, pattern in named.items() if pattern}
    if streams.append:
        options["open-mode"] = "append"
    return {**options, "export": "ALL"}


def _render_array(job: Job, setting: RenderContext) -> str:
    """The --array value: the waiting elements, or those of the launch; empty for no array."""
    if setting.elements is not None:
        return format_array_indices(collapse(setting.elements), setting.throttle, steps=True)
    if job.element is not None:
        return str(job.element.index)
    if job.array is None:
        return ""
    ranges: tuple[IndexRange, ...] = job.array.waiting
    return format_array_indices(ranges, job.array.throttle, steps=True)


def render_secrets(secrets: Mapping[str, str]) -> str:
    """A task's secrets as export commands of sh."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.items())


def render_queue_options(job: Job, held: bool) -> dict[str, str]:
    """The options of a job's place in the queue: begin, deadline, nice, priority, hold."""
    options = {}
    if job.begin is not None:
        options["begin"] = render_instant(job.begin)
    if job.spec.deadline is not None:
        options["deadline"] = render_instant(job.spec.deadline)
    if job.nice:
        options["nice"] = str(job.nice)
    if job.priority is not None:
        options["priority"] = str(job.priority)
    if held:
        options["hold"] = ""
    return options


def render_instant(at: float) -> str:
    """A time that does not depend on the time zone (`uts` seconds, Slurm's parse_time)."""
    return f"uts{int(at)}"


def render_limit(seconds: int) -> str:
    """A --time value; 0 is no limit."""
    return format_elapsed_long(seconds) if seconds else "UNLIMITED"
