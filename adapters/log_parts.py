"""Which part of which file a log is, by the list that a supervisor keeps in the run directory (streams.jsonl). Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from overspan.adapters.contract import LogRequest


class Part(NamedTuple):
    """The bytes of a file that belong to one attempt; `end` None is the file's end."""

    path: str
    begin: int
    end: int | None


def find_part(lines: list[Any], request: LogRequest) -> Part | None:
    """The part of a file that streams.jsonl names for a request; None when it names none.

    An error stream that went with the output has no line of its own: it is found there.
    """
    node = [line for line in lines if line.get("node") == request.node and request.task in ("", line.get("task"))]
    attempts = [line["attempt"] for line in node if request.attempt in (None, line["attempt"])]
    if not attempts:
        return None
    attempt = max(attempts)
    own = [line for line in node if line["attempt"] == attempt and line["stream"] == request.stream]
    if not own:
        return None
    # The node's own restarts within an attempt follow one another in one part.
    path, begin = str(own[0]["path"]), int(own[0].get("start", 0))
    if own[-1]["path"] != path:
        path, begin = str(own[-1]["path"]), int(own[-1].get("start", 0))
    later = [line for line in node if line["path"] == path and line["attempt"] > attempt]
    return Part(path, begin, int(later[0].get("start", 0)) if later else None)
