"""The keys of `on_checkpoint` and `stop_when`."""

from __future__ import annotations

from typing import Any

from overspan.bridge.model.evaluations import Again, EvaluationOrder, ReadyRule, Select
from overspan.bridge.readers.field_types import (
    Record,
    TableKey,
    anything,
    boolean,
    by_form,
    checked,
    choice,
    integer,
    list_of,
    number,
    text,
)
from overspan.bridge.readers.task_fields import clusters, delay, seconds
from overspan.bridge.validation.diagnostics import say_choice

_LARGEST = 1e15


def _parse_ready(value: Any) -> str:
    if value not in (ReadyRule.RENAME.value, ReadyRule.LAYOUT.value):
        raise ValueError(f"{say_choice(str(value), ('layout', 'rename'))}; or write {{marker: NAME}} or {{quiet: 30s}}")
    return str(value)


def _parse_select(value: Any) -> str:
    if value not in (Select.ALL.value, Select.LATEST.value):
        known = say_choice(str(value), ("all", "latest"))
        raise ValueError(f"{known}; or write {{every: N}} or {{milestones: [N, N]}}")
    return str(value)


def _parse_result(value: Any) -> str:
    if value != "exit":
        raise ValueError(f"{value!r} is not exit; or write {{file: result.json}} or {{line: 'RESULT '}}")
    return str(value)


def _parse_best(value: Any) -> str:
    if value not in ("highest", "lowest"):
        raise ValueError(say_choice(str(value), ("highest", "lowest")))
    return str(value)


READY = Record(
    "ready",
    {
        "marker": TableKey(text(255), "A file in the checkpoint, or with {name} beside it, that is written last."),
        "quiet": TableKey(seconds(), "How long nothing of the checkpoint changes."),
    },
)

SELECT = Record(
    "select",
    {
        "every": TableKey(integer(1, 10**12), "Steps that are multiples of this."),
        "milestones": TableKey(list_of(number(0, _LARGEST)), "These steps; the first checkpoint at or after each."),
    },
)

RESULT = Record(
    "result",
    {
        "file": TableKey(text(1024), "A JSON file in the evaluation's run directory."),
        "line": TableKey(text(256), "How the line begins whose rest is JSON or a number."),
        "score": TableKey(text(256), "The key of the score: accuracy, or metrics.accuracy."),
        "best": TableKey(checked(_parse_best, {"enum": ["highest", "lowest"]}), "Which score is the best: highest."),
    },
)

ON_CHECKPOINT = Record(
    "on_checkpoint",
    {
        "name": TableKey(text(64), "Name of the evaluation; default: of its task."),
        "path": TableKey(text(4096), "Folder where checkpoints appear.", required=True),
        "from": TableKey(text(), "The task that writes them; default: the first primary."),
        "pattern": TableKey(
            text(), "A checkpoint's name, with fields: step_{step:int}.", required=True, advice="write step_{step:int}"
        ),
        "ready": TableKey(
            by_form(scalar=checked(_parse_ready, {"enum": ["layout", "rename"]}), table=READY.as_type()),
            "How a checkpoint is known to be complete; default: what its layout writes last.",
        ),
        "select": TableKey(
            by_form(scalar=checked(_parse_select, {"enum": ["all", "latest"]}), table=SELECT.as_type()),
            "Which checkpoints: all, latest, {every: N} or {milestones: [N, N]}; the last one always.",
        ),
        "order": TableKey(choice(EvaluationOrder), "Which waiting checkpoint is next: oldest or newest."),
        "max_parallel": TableKey(integer(1, 10_000), "Evaluations at the same time; default 1."),
        "job": TableKey(text(4096), "Task or job file that evaluates one checkpoint."),
        "task": TableKey(anything(), "The task itself, in place of a file."),
        "cluster": TableKey(clusters(), "Where evaluations run; default: their file's, or where the checkpoints are."),
        "timeout": TableKey(delay(), "Longest time of one evaluation, where its own file names none."),
        "again": TableKey(choice(Again), "on_change: also when a checkpoint is replaced under the same name."),
        "after_failure": TableKey(
            boolean(), "Whether the last one is evaluated when the job has failed; default true."
        ),
        "result": TableKey(
            by_form(scalar=checked(_parse_result, {"enum": ["exit"]}), table=RESULT.as_type()),
            "Where the result is: {file: result.json}, {line: 'RESULT '} or exit.",
        ),
    },
)

STOP_WHEN = Record(
    "stop_when",
    {
        "evaluation": TableKey(text(64), "Whose scores count; needed where there are several."),
        "score": TableKey(checked(str, {"type": ["string", "number"]}), 'The score that is wanted: ">= 0.9".'),
        "no_gain": TableKey(integer(1, 10_000), "Results in a row without a better score."),
    },
)
