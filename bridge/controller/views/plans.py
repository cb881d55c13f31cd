"""Comment lines before a plan's native form: when a job starts, how often, and what follows its ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from overspan.adapters.abilities import Plan
from overspan.bridge.controller.core.dependency_resolver import describe_dependency
from overspan.bridge.lifecycle.stages import split_stages
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.ids import format_array_indices
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import NeedKind, OnFailure, Ready, RetryPolicy, SignalBefore, Streams, TaskSpec

_TURNS = {NeedKind.OK: "succeeded", NeedKind.NOT_OK: "failed", NeedKind.ENDED: "ended"}


def render_plan(adapter: Plan, job: Job) -> str:
    """The cluster's native form of each launch of the job, those of its stages in turn."""
    stages = split_stages(job)
    if len(stages) == 1:
        return adapter.plan(job)
    parts = []
    for number, stage in enumerate(stages, 1):
        turn = _describe_turn(job, tuple(task.name for task in stage.tasks))
        parts.append(f"# stage {number} of {len(stages)}: {turn}\n{adapter.plan(stage)}")
    return "\n".join(parts)


def _describe_turn(job: Job, names: tuple[str, ...]) -> str:
    """`a and b ask for their resources when c has succeeded`."""
    alone = len(names) == 1
    asks = f"{_join(names)} {'asks for its' if alone else 'ask for their'} resources"
    earlier = dict.fromkeys(need for name in names for need in job.spec_of(name).needs if need.task not in names)
    ends = [
        f"{_join(needed)} {'has' if len(needed) == 1 else 'have'} {words}"
        for kind, words in _TURNS.items()
        if (needed := [need.task for need in earlier if need.kind is kind])
    ]
    return f"{asks} when {', and '.join(ends)}" if ends else f"{asks} at once"


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def describe_conditions(job: Job) -> str:
    """Comment lines, one for each thing that the submission says and the cluster's form need not show."""
    lines = [*_describe_job(job), *(f"{task.name}: {line}" for task in job.spec.tasks for line in _describe_task(task))]
    # Texts of the user's may have line breaks; each becomes one comment line.
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def _describe_job(job: Job) -> Iterator[str]:
    spec = job.spec
    if spec.cron is not None:
        zone = f" ({spec.cron.timezone})" if spec.cron.timezone else ""
        yield f"submitted again and again: {spec.cron.text}{zone}, missed: {spec.cron.missed.value}"
    if spec.array is not None:
        throttle = spec.array.throttle
        most = f", at most {throttle} at once" if throttle else ""
        yield f"array: {format_array_indices(spec.array.ranges)}, {spec.array.size()} jobs{most}"
    if spec.hold:
        yield "held: it waits for a release"
    if spec.begin is not None:
        yield f"begin: not before {format_timestamp(spec.begin)}"
    if spec.deadline is not None:
        yield f"deadline: over by {format_timestamp(spec.deadline)}"
    if spec.dependency.needs:
        yield f"needs: {describe_dependency(job)}".replace("(unfulfilled)", "")
    if spec.priority is not None:
        yield f"priority: {spec.priority}"
    if spec.hold_on_failure:
        yield f"hold_on_failure: its nodes are kept for {spec.hold_on_failure} s"


def _describe_elastic(elastic: Elastic) -> str:
    """The bounds of a task, and what the form that follows shows of it."""
    more = (
        f"more when there has been room for {elastic.scale_up_after:g} s" if elastic.scale_up_after is not None else ""
    )
    sizes = f"elastic: {elastic.least} to {elastic.most} members, {elastic.wanted} wanted"
    here = f"it starts with the {elastic.least} shown here, and each further one is a job of its own"
    return "; ".join(filter(None, (sizes, here, more or "only `span scale` adds any")))


def _describe_task(task: TaskSpec) -> Iterator[str]:
    if task.elastic is not None:
        yield _describe_elastic(task.elastic)
    if task.needs:
        yield "needs: " + ", ".join(f"{need.kind.value}:{need.task}" for need in task.needs)
    if task.ready is not None:
        yield f"ready: {_word_ready(task.ready)}"
    if task.retry != RetryPolicy():
        yield f"restarts: {_word_retry(task.retry)}"
    if task.restart is not None:
        yield f"restart: {task.restart.value}"
    if task.signal is not None:
        yield f"signal: {_word_signal(task.signal)}"
    yield from _describe_auxiliary(task)
    # A secret may have been filled into a source.
    yield from (f"file mount: {path}{_hide(f' is {source}', task)}" for path, source in task.file_mounts.items())
    yield from (f"volume: {path}{_hide(f' is {name}', task)}" for path, name in task.volumes.items())
    if task.streams != Streams():
        yield f"files: {_word_streams(task.streams)}"


def _describe_auxiliary(task: TaskSpec) -> Iterator[str]:
    if task.termination_delay:
        yield f"termination_delay: {task.termination_delay} s after the end of the primaries"
    if task.notice_signal:
        yield f"notice_signal: {task.notice_signal} at the end of the primaries"
    if task.on_failure is not OnFailure.IGNORE:
        yield f"on_failure: {task.on_failure.value}"


def _hide(text: str, task: TaskSpec) -> str:
    return "" if task.secrets else text


def _word_ready(ready: Ready) -> str:
    patience = f"within {ready.timeout:g} s" if ready.timeout else "however long it takes"
    return f"{ready.kind.value} {ready.target}, tried every {ready.period:g} s, {patience}"


def _word_retry(retry: RetryPolicy) -> str:
    parts = [f"{retry.max_restarts_on_errors} after errors"]
    if retry.recover_on_exit_codes:
        parts.append(f"always after exit code {', '.join(map(str, retry.recover_on_exit_codes))}")
    parts += [f"{retry.max_recoveries} after lost nodes", f"{retry.max_restarts} in all"]
    wait = retry.backoff
    parts.append(f"waits of {wait.first:g} s, each {wait.factor:g} times as long, up to {wait.limit:g} s")
    return ", ".join(parts)


def _word_signal(signal: SignalBefore) -> str:
    whom = " to the batch shell alone" if signal.batch_only else ""
    return f"{signal.name}{whom} {signal.seconds} s before the time limit"


def _word_streams(streams: Streams) -> str:
    named = {"output": streams.output, "error": streams.error, "input": streams.input}
    parts = [f"{name} {path}" for name, path in named.items() if path]
    return ", ".join([*parts, "appended to"] if streams.append else parts)
