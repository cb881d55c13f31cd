"""The daemon's log: a JSON object a line, in a file that is renamed when it is full."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys

from overspan.bridge.model.errors import OverspanError

MAX_BYTES = 5 << 20
KEPT = 3

_QUIET = ("apscheduler", "uvicorn", "alembic", "sqlalchemy", "asyncio")
"""Libraries whose warnings are enough."""


class JsonFormatter(logging.Formatter):
    """One object a line: at (epoch seconds), level, logger, message and, for failures, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        document = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


def start_records(path: str, foreground: bool) -> None:
    """Send all log records to the file, and to stderr as well in the foreground. Raises OverspanError."""
    try:
        file = logging.handlers.RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8")
    except OSError as error:
        raise OverspanError(
            f"cannot write the log {path}: {error.strerror}", remedy="mend the folder, or set SPAN_STATE_DIR"
        ) from None
    file.setFormatter(JsonFormatter())
    handlers: list[logging.Handler] = [file]
    if foreground:
        talk = logging.StreamHandler(sys.stderr)
        talk.setFormatter(logging.Formatter("span daemon: %(levelname)s: %(message)s"))
        handlers.append(talk)
    # A full disk must not stop the daemon for the sake of its log.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
