"""`span scontrol`: show and change jobs in Slurm's words. Success is silent."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation, outlive_order
from overspan.bridge.cli.output import write
from overspan.bridge.cli.references import is_ref, split_refs
from overspan.bridge.cli.usage import complain, help_text, read_words
from overspan.bridge.client import Client, JobFilter
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Option, Words
from overspan.bridge.model.slurm.words import ALREADY_ENDED, INVALID_JOB, TOO_LONG

OPTIONS = (
    Option("all", "a"),
    Option("cluster", "M", VALUE),
    Option("clusters", "", VALUE),
    Option("details", "d", help="more lines a job"),
    Option("future", "F"),
    Option("help", "h", help="this text"),
    Option("hide"),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("local"),
    Option("oneliner", "o", help="one line a record"),
    Option("quiet", "Q", help="no messages"),
    Option("uid", "u", VALUE),
    Option("usage"),
    Option("verbose", "v"),
    Option("version", "V"),
    Option("yaml", "", OPTIONAL),
)
_USAGE = "usage: span scontrol [OPTION...] COMMAND [ARGUMENT...]"
_COMMANDS = """\
  show job|step|node|partition [NAME], show config, show hostnames|hostlist [LIST]
  hold|uhold|release|requeue|requeuehold|suspend|resume|top ID...
  update JobId=ID TimeLimit=.. Priority=.. Nice=.. JobName=.. Comment=.. StartTime=.. Dependency=..
  write batch_script ID [FILE|-], ping, version"""

Order = Callable[[Client, str], None]
ORDERS: dict[str, Order] = {
    "hold": lambda client, ref: client.hold(ref),
    "uhold": lambda client, ref: client.hold(ref),
    "holdu": lambda client, ref: client.hold(ref),
    "release": lambda client, ref: client.release(ref),
    "requeue": lambda client, ref: client.requeue(ref),
    "requeuehold": lambda client, ref: client.requeue(ref, hold=True),
    "suspend": lambda client, ref: client.suspend(ref),
    "resume": lambda client, ref: client.resume(ref),
    "top": lambda client, ref: client.top(ref),
}


def run(call: Invocation) -> int:
    """Carry out one scontrol command."""
    words = read_words(call, OPTIONS, _USAGE, _COMMANDS)
    if not words.rest or words.rest[0].lower() == "help":
        write(help_text(_USAGE, OPTIONS, _COMMANDS))
        return 0 if words.rest else 1
    verb, rest = words.rest[0].lower(), words.rest[1:]
    if verb == "show":
        from overspan.bridge.cli.slurm.scontrol_show import show

        return show(call, words, rest)
    if verb in ORDERS:
        if verb.startswith("requeue"):
            outlive_order(call.environment)
        return _order(call, words, verb, rest)
    others: dict[str, Callable[[Invocation, Words, Sequence[str]], int]] = {
        "update": _update,
        "write": _write_script,
        "ping": _ping,
        "notify": _notify,
        "version": _version,
    }
    if verb in others:
        return others[verb](call, words, rest)
    return complain(f"invalid keyword: {words.rest[0]}")


def _order(call: Invocation, words: Words, verb: str, rest: Sequence[str]) -> int:
    if not rest:
        return complain(f"too few arguments for keyword:{verb}")
    with call.client() as client:
        texts: list[str] = []
        code = _for_each(words, _find_refs(client, rest), lambda ref: ORDERS[verb](client, ref), texts)
    if texts and verb in ("hold", "uhold", "holdu", "release") and not words.has("quiet"):
        # Slurm tells it once more after the last.
        return complain(f"slurm_suspend error: {texts[-1]}")
    return code


def _find_refs(client: Client, words: Sequence[str]) -> list[str]:
    """The ids of the words: `42`, `42,43`, `jobid=42`, and for `name=x` all live jobs of that name."""
    refs = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.lower() in ("name", "jobname"):
            refs += find_named(client, value)
        else:
            text = value if equals and key.lower() in ("jobid", "job") else word
            refs += split_refs(text)
    return refs


def find_named(client: Client, name: str) -> list[str]:
    """The ids of the live jobs of a name, each once."""
    rows = client.queue(JobFilter(names=(name,))).rows
    return list(dict.fromkeys(str(row.array_id or row.id) for row in rows))


def _for_each(words: Words, refs: Iterable[str], act: Callable[[str], None], texts: list[str] | None = None) -> int:
    """Do something for each job. Failures are reported as scontrol reports them, and make the exit code 1."""
    code = 0
    for ref in refs:
        try:
            if not is_ref(ref):
                raise NotFound(INVALID_JOB)
            act(ref)
        except OverspanError as error:
            if error.transient:
                raise
            code = 1
            text = _explain(error)
            if texts is not None:
                texts.append(text)
            if not words.has("quiet"):
                print(f"{text} for job {ref}", file=sys.stderr)
    return code


def _explain(error: OverspanError) -> str:
    """The reason in Slurm's words, without the id that stands behind it."""
    if isinstance(error, NotFound):
        return INVALID_JOB
    head, _, text = error.message.partition(": ")
    if text == ALREADY_ENDED:
        return "Job has already finished"
    return text if text and head.startswith("job ") else error.message


def _update(call: Invocation, words: Words, rest: Sequence[str]) -> int:
    from overspan.bridge.cli.slurm.scontrol_update import explain_refusal, parse_update

    if not rest:
        return complain("too few arguments for update keyword")
    try:
        changes = parse_update(rest, time.time())
    except InvalidRequest as error:
        return complain(error.message)
    with call.client() as client:
        refs = list(changes.refs) or find_named(client, changes.name)

        def change(ref: str) -> None:
            if changes.values:
                client.update(ref, _absolute(client, ref, changes.values))
            if changes.refused:
                raise InvalidRequest(explain_refusal(changes.refused))

        return _for_each(words, refs, change)


def _absolute(client: Client, ref: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values with a limit in place of a change of it. Raises NotFound, and InvalidRequest below zero."""
    if "time_limit_by" not in values:
        return values
    rows = client.queue(JobFilter(ids=(ref,), tasks=True)).rows
    if not rows:
        raise NotFound(INVALID_JOB)
    rest = {name: value for name, value in values.items() if name != "time_limit_by"}
    if rows[0].time_limit is None:
        return rest
    limit = rows[0].time_limit + values["time_limit_by"]
    if limit <= 0:
        raise InvalidRequest(TOO_LONG)
    return {**rest, "time_limit": limit}


def _write_script(call: Invocation, words: Words, rest: Sequence[str]) -> int:
    if not rest or rest[0].lower() != "batch_script":
        given = rest[0] if rest else ""
        return complain(f"invalid write argument:{given}" if rest else "missing argument for keyword:write")
    if len(rest) == 1:
        return complain("missing argument for keyword:write")
    if len(rest) > 3:
        return complain("too many arguments for keyword:write")
    ref = rest[1]
    try:
        if not is_ref(ref):
            raise NotFound(INVALID_JOB)
        with call.client() as client:
            text = client.script(ref)
    except NotFound:
        return complain(f"job script retrieval failed: {INVALID_JOB}", 0)
    name = rest[2] if len(rest) > 2 else f"slurm-{ref}.sh"
    if name == "-":
        write(text)
        return 0
    with open(name, "w", encoding="utf-8", errors="surrogateescape") as stream:
        # Only the owner may read it: a script may contain secrets.
        os.fchmod(stream.fileno(), 0o600)
        stream.write(text)
    write(f"batch script for job {ref} written to {name}\n")
    return 0


def _ping(call: Invocation, words: Words, rest: Sequence[str]) -> int:
    from overspan.bridge.cli.slurm.scontrol_config import ping_text

    with call.client() as client:
        write(ping_text(str(client.ping().get("host") or "localhost")) + "\n")
    return 0


def _notify(call: Invocation, words: Words, rest: Sequence[str]) -> int:
    if len(rest) < 2:
        return complain("too few arguments for keyword:notify")
    # Slurm writes the text to srun's stderr; a batch job has no srun that would show it.
    try:
        with call.client() as client:
            client.show(rest[0])
    except (NotFound, InvalidRequest):
        return complain(f"job notify failure: {INVALID_JOB}")
    return 0


def _version(call: Invocation, words: Words, rest: Sequence[str]) -> int:
    from overspan.bridge.cli.service.version import slurm_version

    write(slurm_version())
    return 0
