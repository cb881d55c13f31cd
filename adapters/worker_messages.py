"""What workers of pools say, read from JSON data: by HTTP and in mailboxes it is the same."""

from __future__ import annotations

import base64
from typing import Any

from overspan.adapters.abilities import HeldLaunch, OutputPiece, WorkerMessage

EXCHANGE_PATH, OUTPUT_PATH = "/v1/pool/exchange", "/v1/pool/output"
MAX_WAIT = 60.0
MOST_LETTERS = 64
MOST_FEATURES = 64
MOST_FILES = 100_000
MOST = 2**53


def read_message(document: Any) -> WorkerMessage:
    """Read what a worker has sent. Raises ValueError, LookupError, TypeError and AttributeError for anything else."""
    held = {
        str(handle): HeldLaunch(_count(state["sent"]), _count(state["orders"]))
        for handle, state in document["held"].items()
    }
    journals = {
        str(handle): (_count(growth["offset"]), str(growth["text"])) for handle, growth in document["journals"].items()
    }
    word, mark, wait = str(document["word"]), str(document.get("mark", "")), float(document["wait"])
    if not word.isalnum() or len(word) > MOST_LETTERS or not 0 <= wait <= MAX_WAIT:
        raise ValueError("its word or its wait is out of bounds")
    features = frozenset(str(name) for name in document.get("features", ()))
    if len(features) > MOST_FEATURES or any(len(name) > MOST_LETTERS for name in features):
        raise ValueError("its features are out of bounds")
    return WorkerMessage(_count(document["job"]), word, held, journals, mark, wait, features)


def read_piece(document: Any) -> OutputPiece:
    """Read a piece of output. Raises ValueError, LookupError, TypeError and AttributeError for anything else."""
    given, word = document["stream"], str(document["word"])
    stream: dict[str, str | int] = {name: _count(given[name]) for name in ("node", "attempt", "run")}
    stream |= {"task": str(given["task"]), "stream": str(given["stream"])}
    if stream["stream"] not in ("output", "error") or not word.isalnum() or len(word) > MOST_LETTERS:
        raise ValueError("its stream or its word is none")
    data = base64.b64decode(document["data"], validate=True)
    number = _count(document["number"])
    if number > MOST_FILES:
        raise ValueError(f"{number} is no number of a file")
    return OutputPiece(
        _count(document["job"]), word, str(document["handle"]), number, stream, _count(document["offset"]), data
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
        raise ValueError(f"{value!r} is no count")
    return value
