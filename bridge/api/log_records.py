"""The daemon's log: a JSON object a line in a file that is renamed when it is full, and the same on stderr.

Levels say what they ask of the reader: ERROR, something of ours failed and will not mend itself; WARNING, look if it
lasts; INFO, what has happened. Modules give what a line is about as fields (`extra`), by the names in `FIELDS`.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
from collections.abc import Mapping

from overspan.bridge.model.errors import StoreFailed

MAX_BYTES = 5 << 20
KEPT = 3

FIELDS = ("job", "task", "cluster", "token", "user")
"""What a line can be about, beside its message."""
JSON, TEXT = "json", "text"

_QUIET = ("apscheduler", "uvicorn", "alembic", "sqlalchemy", "asyncio")
"""Libraries whose warnings are enough."""


class JsonFormatter(logging.Formatter):
    """One object a line: at (epoch seconds), level, logger, message, the fields, and for failures the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        document = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_find_fields(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """For people who watch: level and message; the fields that the message may not have stand behind it."""

    def __init__(self) -> None:
        super().__init__("span daemon: %(levelname)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback."""
        fields = " ".join(f"{name}={value}" for name, value in _find_fields(record).items())
        line = super().formatMessage(record)
        return f"{line} [{fields}]" if fields else line


class SizedFileHandler(logging.handlers.RotatingFileHandler):
    """A file that is renamed when it is full; it asks neither the file system nor the formatter whether it is."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Whether the file is full."""
        return self.stream is not None and self.stream.tell() >= self.maxBytes


FORMATTERS: Mapping[str, type[logging.Formatter]] = {JSON: JsonFormatter, TEXT: TextFormatter}


def start_records(path: str, foreground: str = "") -> None:
    """Send all log records to the file, and to stderr in the format `foreground`, if any. Raises StoreFailed."""
    try:
        file = SizedFileHandler(path, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8")
    except OSError as error:
        raise StoreFailed(
            f"cannot write the log {path}: {error.strerror}", remedy="mend the folder, or set SPAN_STATE_DIR"
        ) from None
    file.setFormatter(JsonFormatter())
    handlers: list[logging.Handler] = [file]
    if foreground:
        talk = logging.StreamHandler(sys.stderr)
        talk.setFormatter(FORMATTERS[foreground]())
        handlers.append(talk)
    # A full disk must not stop the daemon for the sake of its log.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _find_fields(record: logging.LogRecord) -> dict[str, object]:
    given = record.__dict__
    return {name: given[name] for name in FIELDS if given.get(name) not in (None, "")}
