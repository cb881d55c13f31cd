"""Sections: what is told of a job, from the daemon's answers. Pure; the layout and the colours are others'."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.messages import Transition
from overspan.bridge.listings.array_summary import failed_indices
from overspan.bridge.listings.explanations import explain_cause, explain_exit, explain_reason, name_fault
from overspan.bridge.listings.job_facts import list_facts, list_task_reasons, seconds_run
from overspan.bridge.listings.texts import first_word
from overspan.bridge.model.durations import format_elapsed, format_limit, format_timestamp
from overspan.bridge.model.ids import format_array_indices
from overspan.bridge.model.state_words import LIVE_WORDS
from overspan.tui.amounts import count, format_mebibytes
from overspan.tui.detail.answers import JobAnswers
from overspan.tui.detail.layout import (
    DetailBlock,
    DetailLine,
    DetailText,
    LabelledValues,
    StateBar,
    StateSpan,
    TextGrid,
    VerbatimText,
)
from overspan.tui.queue.columns import style_of

MOST_LINES = 1000
"""Lines of a script that are shown."""
MOST_NODES = 64
_ELSEWHERE = ("Job", "State", "Exit", "Command", "Directory")
MOST_VARIABLES = 40
"""Variables of the job itself that are shown; the others, and the submitter's, are on the screen of texts."""


class DetailSection(NamedTuple):
    """A part of the pane: its title and its blocks."""

    title: str
    blocks: tuple[DetailBlock, ...]


def make_sections(answers: JobAnswers, now: float) -> list[DetailSection]:
    """All sections that have something to tell, at a time of the daemon's clock."""
    job = answers.job
    found = (
        DetailSection("Summary", (LabelledValues(tuple(_summarize(job, now))),)),
        DetailSection("Timeline", tuple(_tell_timeline(answers, now))),
        DetailSection("Tasks", tuple(_list_tasks(job, now))),
        DetailSection("Attempts", tuple(_list_attempts(job, now))),
        DetailSection("Array", tuple(_sum_array(answers))),
        DetailSection("Submission", tuple(_tell_submission(answers))),
        DetailSection("Environment", tuple(_list_variables(answers))),
        DetailSection("Script", tuple(_show_script(answers))),
    )
    return [section for section in found if section.blocks]


def _summarize(job: Mapping[str, Any], now: float) -> Iterator[tuple[str, DetailLine]]:
    state = str(job.get("state"))
    reason = str(job.get("reason") or "None")
    word = () if reason == "None" else (DetailText(f" ({first_word(reason)})", "dim"),)
    if job.get("task"):
        yield "Task", (DetailText(f"{job['task']} of {job.get('id')} {job.get('name')}", "accent"),)
    yield "State", (DetailText(state, style_of(state)), *word, DetailText(_tell_time(job, now), "dim"))
    if state == "PENDING" and (why := explain_reason(reason)):
        yield "Waits", (DetailText(why, "waiting"),)
    elif state not in LIVE_WORDS and state != "COMPLETED":
        yield "Ended", (DetailText(_tell_end(job), style_of(state)),)
    for name, value in list_facts(job):
        if name not in _ELSEWHERE:
            yield name, (DetailText(value),)
    tasks = job.get("tasks") or ()
    for place, task in enumerate(tasks):
        own: DetailLine = (DetailText(f"{task.get('name')}: ", "accent"),) if len(tasks) > 1 else ()
        yield "" if place else "Asks for", (*own, DetailText(_tell_demand(task)))
    yield from (("Waits", (DetailText(text, "waiting"),)) for text in list_task_reasons(job))


def _tell_time(job: Mapping[str, Any], now: float) -> str:
    """How long it waits, or how much of its limit it has used."""
    if job.get("state") == "PENDING":
        return f" for {format_elapsed(max(0, now - float(job.get('submitted_at') or now)))}"
    if job.get("array"):
        # What ran are its elements: its own task never does.
        used = float(job.get("ended_at") or now) - float(job.get("started_at") or now)
    else:
        used = max((seconds_run(job, task, now) for task in job.get("tasks") or ()), default=0)
    limits = {task.get("time_limit") for task in job.get("tasks") or ()}
    limit = limits.pop() if len(limits) == 1 else None
    return f" {format_elapsed(max(0, used))}" + ("" if limit is None else f" of {format_limit(limit)}")


def _tell_end(job: Mapping[str, Any]) -> str:
    """Why it did not end well: the cause, whose doing it was, exit code or signal, and what is known besides."""
    state = str(job.get("state"))
    last = [attempts[-1] for task in job.get("tasks") or () if (attempts := task.get("attempts"))]
    bad: Mapping[str, Any] = next((each for each in last if each.get("state") == state), {})
    cause = str(bad.get("cause") or "")
    fault = name_fault(cause, state)
    words = [explain_cause(cause, state) + (f" ({fault})" if fault else "")]
    words += [explain_exit(int(job.get("exit_code") or 0), int(job.get("signal") or 0)), str(bad.get("detail") or "")]
    return "; ".join(filter(None, words))


def _tell_demand(task: Mapping[str, Any]) -> str:
    parts = [count(task.get("nodes") or 0, "node"), count(task.get("cpus") or 0, "CPU")]
    parts += [f"{format_mebibytes(task['memory'])} a node"] if task.get("memory") else []
    parts += [count(task["gpus"], "GPU")] if task.get("gpus") else []
    limit = task.get("time_limit")
    return ", ".join([*parts, "no time limit" if limit is None else f"{format_limit(limit)} at most"])


def make_spans(rows: Iterable[Transition], begin: float, now: float) -> tuple[StateSpan, ...]:
    """The states of one job or task: each from its beginning to the next one's, the last live one to now."""
    spans: list[StateSpan] = []
    state, since = "PENDING", begin
    for row in rows:
        if row.end and row.end != state:
            spans.append(StateSpan(since, row.at, state))
            state, since = row.end, row.at
    if state in LIVE_WORDS:
        spans.append(StateSpan(since, max(now, since), state))
    return tuple(span for span in spans if span.state in LIVE_WORDS and span.end > span.begin)


def _tell_timeline(answers: JobAnswers, now: float) -> Iterator[DetailBlock]:
    if "timeline" in answers.troubles:
        yield VerbatimText((answers.troubles["timeline"],))
    rows = answers.timeline
    if not rows:
        return
    tasks = list(dict.fromkeys(row.task for row in rows if row.task))
    names = tasks if len(tasks) > 1 else [""]
    begin = float(answers.job.get("submitted_at") or rows[0].at)
    bars = ((name, make_spans([row for row in rows if row.task == name], begin, now)) for name in names)
    yield StateBar(tuple((name or "job", spans) for name, spans in bars))
    yield TextGrid(("AT", "TASK", "STATE", "WHY"), tuple(_transition_cells(row) for row in rows))


def _transition_cells(row: Transition) -> DetailLine:
    reason = "" if row.reason in ("", "None") else f"({row.reason})"
    why = " ".join(filter(None, (reason, row.text, "" if row.text else explain_cause(row.cause))))
    return (
        DetailText(format_timestamp(row.at), "dim"),
        DetailText(row.task or "job"),
        DetailText(row.end or "-", style_of(row.end) if row.end else "dim"),
        DetailText(why),
    )


def _list_tasks(job: Mapping[str, Any], now: float) -> Iterator[DetailBlock]:
    tasks: Sequence[Mapping[str, Any]] = job.get("tasks") or ()
    if job.get("array"):
        return
    header = ("TASK", "ROLE", "STATE", "TIME", "READY", "EXIT", "NODES")
    yield TextGrid(header, tuple(_task_line(job, task, now) for task in tasks))
    waits = tuple(("Waits", (DetailText(str(task["waits"]), "waiting"),)) for task in tasks if task.get("waits"))
    if waits:
        yield LabelledValues(waits)
    nodes = [(task, node) for task in tasks if task.get("attempts") for node in task["attempts"][-1].get("nodes") or ()]
    if nodes:
        left = len(nodes) - MOST_NODES
        more = ((DetailText(f"{left} more"), *[DetailText("")] * 3),) if left > 0 else ()
        rows = tuple(_node_line(task, node) for task, node in nodes[:MOST_NODES])
        yield TextGrid(("MEMBER", "NODE", "GPUS", "HOW"), (*rows, *more))


def _task_line(job: Mapping[str, Any], task: Mapping[str, Any], now: float) -> DetailLine:
    state = str(task.get("state"))
    ready = format_timestamp(task.get("ready_at"), "")
    return (
        DetailText(str(task.get("name")), "accent"),
        DetailText("primary" if task.get("primary", True) else "auxiliary", "dim"),
        DetailText(state, style_of(state)),
        DetailText(format_elapsed(max(0, seconds_run(job, task, now)))),
        DetailText(ready or "-", "" if ready else "dim"),
        DetailText(explain_exit(int(task.get("exit_code") or 0), int(task.get("signal") or 0)) or "-"),
        DetailText(str(task.get("node_list") or "")),
    )


def _node_line(task: Mapping[str, Any], node: Mapping[str, Any]) -> DetailLine:
    ended = explain_exit(int(node.get("exit_code") or 0), int(node.get("signal") or 0)) or "ended well"
    how = ended if node.get("ended_at") else "runs" if node.get("started_at") else "has not started"
    return (
        DetailText(f"{task.get('name')}-{node.get('index')}", "accent"),
        DetailText(" ".join(filter(None, (str(node.get("node") or ""), str(node.get("address") or ""))))),
        DetailText(",".join(map(str, node.get("gpus") or ()))),
        DetailText("; ".join(filter(None, (how, str(node.get("detail") or ""))))),
    )


def _list_attempts(job: Mapping[str, Any], now: float) -> Iterator[DetailBlock]:
    """Attempts are told where there is more than one of a task, or one that did not end well."""
    rows = [(task, each) for task in job.get("tasks") or () for each in task.get("attempts") or ()]
    telling = any(each.get("number") or explain_cause(str(each.get("cause") or "")) for _, each in rows)
    if telling:
        header = ("TASK", "NO", "STATE", "STARTED", "RAN", "WHY")
        yield TextGrid(header, tuple(_attempt_cells(task, each, now) for task, each in rows))


def _attempt_cells(task: Mapping[str, Any], attempt: Mapping[str, Any], now: float) -> DetailLine:
    state, started = str(attempt.get("state")), attempt.get("started_at")
    ran = "" if started is None else format_elapsed(max(0, (attempt.get("ended_at") or now) - started))
    cause = str(attempt.get("cause") or "")
    code = explain_exit(int(attempt.get("exit_code") or 0), int(attempt.get("signal") or 0))
    words = (explain_cause(cause), name_fault(cause), code, str(attempt.get("detail") or ""))
    return (
        DetailText(str(task.get("name")), "accent"),
        DetailText(str(attempt.get("number"))),
        DetailText(state, style_of(state)),
        DetailText(format_timestamp(started, "-")),
        DetailText(ran),
        DetailText("; ".join(filter(None, words))),
    )


def _sum_array(answers: JobAnswers) -> Iterator[DetailBlock]:
    if "array" in answers.troubles:
        yield VerbatimText((answers.troubles["array"],))
    if not answers.elements:
        return
    rows = tuple(
        (
            DetailText(str(each.size)),
            DetailText(each.state, style_of(each.state)),
            DetailText(explain_exit(each.exit_code, each.signal) or "-"),
            DetailText(format_array_indices(each.indices)),
        )
        for each in answers.elements
    )
    yield TextGrid(("ELEMENTS", "STATE", "EXIT", "INDICES"), rows)
    failed = failed_indices(answers.elements)
    if failed:
        yield LabelledValues((("Failed", (DetailText(failed, "bad"),)),))


def _tell_submission(answers: JobAnswers) -> Iterator[DetailBlock]:
    job = answers.job
    facts = [
        ("Submitted by", answers.submit_line),
        ("Command", str(job.get("command") or "")),
        ("Directory", str(job.get("work_dir") or "")),
        ("Host", str(job.get("host") or "")),
    ]
    tasks, array = job.get("tasks") or (), job.get("array") or {}
    for task in [array] if array.get("stdout") else tasks:
        name = f" of {task.get('name')}" if len(tasks) > 1 else ""
        facts += [(f"Output{name}", str(task.get("stdout") or "")), (f"Errors{name}", str(task.get("stderr") or ""))]
    shown = tuple((name, (DetailText(value),)) for name, value in facts if value)
    if shown:
        yield LabelledValues(shown)


def _list_variables(answers: JobAnswers) -> Iterator[DetailBlock]:
    """The variables that the job itself names; secrets are hidden."""
    if "variables" in answers.troubles:
        yield VerbatimText((answers.troubles["variables"],))
    task = answers.job.get("task")
    own = [each for each in answers.variables if each.origin != "submission" and (not task or each.task in ("", task))]
    names = [
        f"{each.task} {each.name}".strip() if len(answers.job.get("tasks") or ()) > 1 else each.name for each in own
    ]
    shown = [
        (name, (DetailText(each.value, "dim" if each.hidden else ""),))
        for name, each in zip(names[:MOST_VARIABLES], own, strict=False)
    ]
    if shown:
        yield LabelledValues(tuple(shown))
    left = len(answers.variables) - len(shown)
    if left:
        yield VerbatimText((f"{left} {'more' if shown else 'of the submission'}: `b` shows all",))


def _show_script(answers: JobAnswers) -> Iterator[DetailBlock]:
    if "script" in answers.troubles:
        yield VerbatimText((answers.troubles["script"],))
    lines = answers.script.splitlines()
    if lines:
        left = len(lines) - MOST_LINES
        yield VerbatimText((*lines[:MOST_LINES], *([f"... {left} more lines"] if left > 0 else [])))
