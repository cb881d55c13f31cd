"""Makes the job of an evaluation out of its template and a checkpoint."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.evaluations import EvaluationOf, EvaluationSpec, ResultKind
from overspan.bridge.model.spec import Form, JobSpec, TaskSpec
from overspan.bridge.readers.evaluations import CHECKPOINT, FIELD

RESULT_MARK = "OVERSPAN-RESULT "
"""How the line begins by which a result file comes back in the log, from wherever the evaluation ran."""
MAX_RESULT = 65536
"""Bytes of a result file."""
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_MAX_NAME = 50


@dataclass(frozen=True)
class CheckpointValues:
    """What a template is filled with. `path` is the checkpoint's where the evaluation runs."""

    name: str
    path: str
    fields: Mapping[str, Any]
    step: float | None = None


def make_evaluation_job(watch: EvaluationSpec, of: EvaluationOf, values: CheckpointValues, parent: int) -> JobSpec:
    """The job that evaluates a checkpoint. InvalidRequest for a name that the template's commands cannot take."""
    spec = decode(JobSpec, dict(watch.template))
    texts = {name: format_value(value) for name, value in values.fields.items()} | {CHECKPOINT: values.path}
    name = _name_job(watch, values, texts)
    tasks = tuple(_fill_task(task, watch, texts, values, index) for index, task in enumerate(spec.tasks))
    return replace(spec, name=name, tasks=tasks, parent=parent, evaluation=of)


def format_value(value: Any) -> str:
    """A field as text: whole numbers without a fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _name_job(watch: EvaluationSpec, values: CheckpointValues, texts: Mapping[str, str]) -> str:
    end = values.name if values.step is None else format_value(values.step)
    wanted = FIELD.sub(lambda match: texts.get(match[1], match[0]), watch.job_name) or f"{watch.name}-{end}"
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", wanted).strip("-_") or watch.name
    return name if len(name) <= _MAX_NAME else name[:_MAX_NAME].rstrip("-_")


def _fill_task(
    task: TaskSpec, watch: EvaluationSpec, texts: Mapping[str, str], values: CheckpointValues, index: int
) -> TaskSpec:
    def fill(text: str) -> str:
        return FIELD.sub(lambda match: texts.get(match[1], match[0]), text)

    variables = {
        "OVERSPAN_CHECKPOINT": values.path,
        "OVERSPAN_EVALUATION": watch.name,
        **({} if values.step is None else {"OVERSPAN_STEP": format_value(values.step)}),
        **{f"OVERSPAN_FIELD_{name.upper()}": text for name, text in texts.items() if name != CHECKPOINT},
    }
    run = _fill_shell(task.run, texts, "run")
    if index == 0 and task.form is Form.RUN and watch.result.kind is ResultKind.FILE:
        run = _send_result(watch.result.file) + run
    return replace(
        task,
        run=run,
        setup=_fill_shell(task.setup, texts, "setup"),
        args=tuple(map(fill, task.args)),
        workdir=fill(task.workdir),
        image=fill(task.image),
        env={**_map(task.env, fill), **variables},
        file_mounts=_map(task.file_mounts, fill),
        volumes=_map(task.volumes, fill),
        storage=tuple(replace(mount, target=fill(mount.target), url=fill(mount.url)) for mount in task.storage),
    )


def _map(values: Mapping[str, str], fill: Callable[[str], str]) -> dict[str, str]:
    return {key: fill(value) for key, value in values.items()}


def _fill_shell(text: str, texts: Mapping[str, str], where: str) -> str:
    """Fill fields into shell text; what a shell would take apart is refused."""

    def put(match: re.Match[str]) -> str:
        value = texts.get(match[1])
        if value is None:
            return match[0]
        if not _SAFE.fullmatch(value):
            variable = "OVERSPAN_CHECKPOINT" if match[1] == CHECKPOINT else f"OVERSPAN_FIELD_{match[1].upper()}"
            raise InvalidRequest(
                f"{value!r} has characters that a shell takes for its own, and `{where}` has {match[0]} in it",
                remedy=f'write "${variable}" there in its place',
            )
        return value

    return FIELD.sub(put, text)


def _send_result(file: str) -> str:
    """Shell text that prints the result file as one line of the log when the task ends."""
    name = shlex.quote(file)
    return (
        f'export OVERSPAN_RESULT="${{OVERSPAN_RUN_DIR:-$PWD}}"/{name}\n'
        'trap \'_overspan_code=$?; [ -f "$OVERSPAN_RESULT" ] && printf "\\n%s%s\\n" "' + RESULT_MARK + '" '
        f'"$(head -c {MAX_RESULT} "$OVERSPAN_RESULT" | tr "\\n\\r" "  ")"; exit $_overspan_code' + "' EXIT\n"
    )
