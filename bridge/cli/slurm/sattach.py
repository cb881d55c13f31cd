"""`span sattach`: see what the tasks of a running step write, beside its srun."""

from __future__ import annotations

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write
from overspan.bridge.cli.references import is_ref
from overspan.bridge.cli.slurm.allocations import become, find_run
from overspan.bridge.cli.usage import complain, read_words
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.options.getopt import VALUE, Option, Words
from overspan.bridge.model.slurm.words import INVALID_JOB

_OPTIONS = (
    Option("error-filter", "", VALUE, "print the stderr of this task alone", "TASK"),
    Option("help", "h", help="this text"),
    Option("input-filter", "", VALUE),
    Option("label", "l", help="the task's number before each line"),
    Option("layout", "", help="print where the tasks are, and end"),
    Option("output-filter", "", VALUE, "print the stdout of this task alone", "TASK"),
    Option("quiet", "Q"),
    Option("usage", "u"),
    Option("verbose", "v"),
    Option("version", "V"),
)
_USAGE = "Usage: sattach [options] <jobid.stepid>"
_NOTES = "Ends with the step; the exit code is the highest of its tasks. Input is not passed on."
_FILTERS = {"output-filter": "output", "error-filter": "error", "input-filter": ""}


def run(call: Invocation) -> int:
    """Run one command line."""
    words = read_words(call, _OPTIONS, _USAGE, _NOTES)
    for name in _FILTERS:
        if words.has(name) and not words.last(name).isdigit():
            say(call, f'error: Invalid numeric value "{words.last(name)}" for {name}.')
            return 1
    if len(words.rest) != 1:
        return _refuse_words(call, "too many parameters")
    job, dot, step = words.rest[0].partition(".")
    if not dot or not is_ref(job):
        return _refuse_words(call, "Failed to parse stepid from command line options")
    if not step.isdigit() and step != "batch":
        return complain(f"sattach: fatal: Bad step specified: {job}")
    try:
        folder = find_run(call.environment, _find_number(call, job))
        if step == "batch":
            raise InvalidRequest("a batch step has no srun")
    except (InvalidRequest, NotFound):
        say(call, f"error: Could not get job step info: {INVALID_JOB}")
        return 1
    return become("sattach", [step, *_entry_words(words)], folder, call.environment)


def _refuse_words(call: Invocation, text: str) -> int:
    say(call, f"error: {text}")
    write(_USAGE + "\n")
    return 1


def _find_number(call: Invocation, ref: str) -> str:
    """The number of a job; an element or a task of a group is looked up."""
    if ref.isdigit():
        return ref
    with call.client() as client:
        return str(client.show(ref)["id"])


def _entry_words(words: Words) -> list[str]:
    filters = [f"--{entry}={int(words.last(name))}" for name, entry in _FILTERS.items() if entry and words.has(name)]
    return [*filters, *(f"--{name}" for name in ("label", "layout") if words.has(name))]
