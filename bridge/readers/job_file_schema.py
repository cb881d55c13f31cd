"""The JSON Schema of a job file, made from the tables that the reader uses."""

from __future__ import annotations

from typing import Any

from overspan.bridge.readers.header_fields import HEADER, SINGLE, TASK

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_file_schema() -> dict[str, Any]:
    """The schema of each document of a job file, for editors (JSON Schema 2020-12).

    A document is a header, a task of a group or pipeline, or a whole job with its only task. What concerns several
    documents (names, needs, primaries) is checked by the reader alone.
    """
    return {
        "$schema": DIALECT,
        "title": "Overspan job file",
        "description": "One document of a job file.",
        "anyOf": [{"$ref": "#/$defs/job"}, {"$ref": "#/$defs/header"}, {"$ref": "#/$defs/task"}],
        "$defs": {
            "job": {"title": "A job with a single task", **SINGLE.schema()},
            "header": {"title": "The header of a group or pipeline", **HEADER.schema()},
            "task": {"title": "A task of a group or pipeline", **TASK.schema()},
        },
    }
