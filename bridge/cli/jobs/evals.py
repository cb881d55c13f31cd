"""`span evals`: the evaluations of a job's checkpoints; `run` and `watch` add some."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.arguments import Parser, make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import find_width, rfc3339, say, write, write_json
from overspan.bridge.cli.references import find_job
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import InvalidRequest

_EXAMPLES = """\
  span evals rlhf                                  every evaluation with its score
  span evals rlhf --plot                           the scores over the steps
  span evals run rlhf step_200                     evaluate a checkpoint once more
  span evals watch 42 --path /ckpt --pattern 'step_{step:int}' --job eval.yaml
"""
_HEAD = ("EVALUATION", "CHECKPOINT", "STEP", "JOB", "STATE", "SCORE", "ENDED", "")
_RIGHT = (2, 3, 5)
_TIMES = ("ready_at", "submitted_at", "ended_at")


def run(call: Invocation) -> int:
    """Show evaluations, or run the verb."""
    words = list(call.words)
    if words[:1] == ["run"]:
        return _run(call, words[1:])
    if words[:1] == ["watch"]:
        return _watch(call, words[1:])
    parser = _make_list_parser(call)
    chosen = parser.parse_args(words)
    with call.client() as client:
        watches = client.evals(find_job(client, chosen.job))
    watches = [watch for watch in watches if chosen.evaluation in ("", watch["name"])]
    if chosen.json:
        write_json({"format": 1, "watches": [_dated(watch) for watch in watches]})
        return 0
    if not watches:
        what = f"evaluation {chosen.evaluation!r}" if chosen.evaluation else "evaluations"
        say(call, f"job {chosen.job} has no {what}")
    elif chosen.plot:
        _plot(call, watches)
    else:
        write(format_table(watches))
    _tell(call, watches)
    return 0


def _make_list_parser(call: Invocation) -> Parser:
    parser = make_parser(call, "Show the evaluations of a job's checkpoints.", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="id or name; `run` and `watch` are verbs")
    parser.add_argument("evaluation", metavar="EVALUATION", nargs="?", default="", help="only this one")
    parser.add_argument("--plot", action="store_true", help="draw the scores over the steps")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser


def format_table(watches: Sequence[Mapping[str, Any]]) -> str:
    """The evaluations as a table, in the order of their steps; `*` marks the best score."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for watch in watches:
        rows += [_make_row(watch, each) for each in sorted(watch["evaluations"], key=_order)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = (
            text.rjust(width) if column in _RIGHT else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths))
        )
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _make_row(watch: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, ...]:
    ended = format_timestamp(one["ended_at"]) if one["ended_at"] else ""
    score = "" if one["score"] is None else f"{one['score']:.6g}" + ("*" if one["best"] else " ")
    step = "" if one["step"] is None else f"{one['step']:.15g}"
    run = f" (run {one['run']})" if one["run"] else ""
    job = str(one["job"] or "")
    why = "; ".join(filter(None, (one.get("reason", ""), one["trouble"])))
    return (_label(watch), one["checkpoint"] + run, step, job, one["state"], score, ended, why)


def _label(watch: Mapping[str, Any]) -> str:
    """The name of a watch; of one of an array's elements with that before it."""
    return " ".join(filter(None, (watch.get("element", ""), watch["name"])))


def _order(one: Mapping[str, Any]) -> tuple[float, str, int]:
    return (float("-inf") if one["step"] is None else one["step"], one["checkpoint"], one["id"])


def _tell(call: Invocation, watches: Sequence[Mapping[str, Any]]) -> None:
    """What hinders a watch, what is not complete yet, and where completeness is a guess."""
    for watch in watches:
        name = _label(watch)
        if watch["note"]:
            say(call, f"{name}: {watch['note']}")
        for each in watch["incomplete"][:5]:
            say(call, f"{name}: {each['checkpoint']} is not complete: {each['why']}")
        if watch["guess"]:
            say(call, f"{name}: the layout is not a known one, so that a checkpoint is complete is a guess (`ready:`)")


def _dated(watch: Mapping[str, Any]) -> dict[str, Any]:
    dated = [{**each, **{key: rfc3339(each[key]) for key in _TIMES}} for each in watch["evaluations"]]
    return {**watch, "evaluations": dated}


def _plot(call: Invocation, watches: Sequence[Mapping[str, Any]]) -> None:
    from overspan.bridge.cli.jobs.score_plot import PlotPoint, draw_scores

    for watch in watches:
        points = [
            PlotPoint(each["step"], each["score"], each["best"])
            for each in watch["evaluations"]
            if each["score"] is not None and each["step"] is not None
        ]
        if not points:
            say(call, f"{_label(watch)}: no score over a step yet")
            continue
        write(draw_scores(_label(watch), points, find_width(call.environment) or 80))


# --- verbs ------------------------------------------------------------------------------------------------------------


def _run(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Evaluate a checkpoint once more, also one that `select` leaves out.", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="id or name of the watched job")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="its name or path")
    parser.add_argument("--evaluation", default="", metavar="NAME", help="only this one; default: all of the job")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON document")
    chosen = parser.parse_args(words)
    with call.client() as client:
        made = client.run_evaluation(find_job(client, chosen.job), chosen.checkpoint, chosen.evaluation)
    if chosen.json:
        write_json({"format": 1, "evaluations": made})
    else:
        for each in made:
            what = f"job {each['job']}" if each["job"] else "waits for its turn"
            write(f"Evaluation {each['id']} of {each['checkpoint']}: {what}\n")
    return 0


def _watch(call: Invocation, words: list[str]) -> int:
    chosen = _make_watch_parser(call).parse_args(words)
    with call.client() as client:
        name, notes = client.watch_checkpoints(find_job(client, chosen.of), _read_watch(chosen))
    for note in notes:
        say(call, note)
    write(f"Watching checkpoints of job {chosen.of}: {name}\n")
    return 0


def _make_watch_parser(call: Invocation) -> Parser:
    parser = make_parser(call, "Evaluate the checkpoints of a job that exists already.", _EXAMPLES)
    parser.add_argument("of", metavar="JOB", help="id, N_i or name of the job that writes them")
    parser.add_argument("--path", required=True, metavar="FOLDER", help="where checkpoints appear")
    parser.add_argument("--pattern", required=True, help="their names: 'step_{step:int}'")
    parser.add_argument("--job", required=True, metavar="FILE", help="task or job file that evaluates one")
    parser.add_argument("--name", help="name of the evaluation; default: of its file")
    parser.add_argument("--from", dest="from_", metavar="TASK", help="the task that writes them")
    parser.add_argument("--marker", metavar="FILE", help="a file in a checkpoint that is written last")
    parser.add_argument("--quiet", metavar="TIME", help="how long nothing of a complete checkpoint changes")
    parser.add_argument("--rename", action="store_true", help="a checkpoint appears whole under its name")
    parser.add_argument("--select", choices=("all", "latest"), help="which checkpoints")
    parser.add_argument("--every", type=int, metavar="N", help="only steps that are multiples of N")
    parser.add_argument("--max-parallel", type=int, metavar="N", help="evaluations at the same time")
    parser.add_argument("-M", "--cluster", metavar="NAME", help="cluster of the evaluations")
    parser.add_argument("--timeout", metavar="TIME", help="longest time of one evaluation")
    parser.add_argument("--result", metavar="FILE", help="JSON file with the result")
    parser.add_argument("--score", metavar="KEY", help="which number of the result counts")
    return parser


def _read_watch(chosen: argparse.Namespace) -> dict[str, Any]:
    """The options as keys of `on_checkpoint`."""
    ready = [
        *([{"marker": chosen.marker}] if chosen.marker else []),
        *([{"quiet": chosen.quiet}] if chosen.quiet else []),
        *(["rename"] if chosen.rename else []),
    ]
    if len(ready) > 1:
        raise InvalidRequest("--marker, --quiet and --rename exclude each other", remedy="keep one of them")
    if chosen.every is not None and chosen.select:
        raise InvalidRequest("--select and --every exclude each other", remedy="keep one of them")
    result = {key: value for key, value in (("file", chosen.result), ("score", chosen.score)) if value}
    values = {
        "name": chosen.name,
        "path": chosen.path,
        "pattern": chosen.pattern,
        "job": chosen.job,
        "from": chosen.from_,
        "ready": ready[0] if ready else None,
        "select": {"every": chosen.every} if chosen.every is not None else chosen.select,
        "max_parallel": chosen.max_parallel,
        "cluster": chosen.cluster,
        "timeout": chosen.timeout,
        "result": result or None,
    }
    return {key: value for key, value in values.items() if value is not None}
