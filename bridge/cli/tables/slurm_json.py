"""The frame of every document in Slurm's JSON. JSON is YAML too, so --yaml gives the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write_json
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import InvalidRequest

PARSER = "v0.0.40"


def check_parser(call: Invocation) -> None:
    """Raise InvalidRequest where another shape is asked for than there is."""
    for word in call.words:
        name, _, value = word.partition("=")
        if name in ("--json", "--yaml") and value not in ("", "list", PARSER):
            raise InvalidRequest(f"Unable to find plugin: data_parser/{value}", remedy=f"{name}={PARSER} is there")


def write_document(call: Invocation, content: Mapping[str, Any], cluster: str = "") -> None:
    """Write a document with its meta block, errors and warnings. Raises InvalidRequest for another parser."""
    from overspan.bridge.cli.service.version import SLURM_VERSION

    check_parser(call)
    major, minor, micro = SLURM_VERSION.split(".")
    meta = {
        "plugin": {
            "type": "openapi/slurmctld",
            "name": "Slurm OpenAPI slurmctld",
            "data_parser": f"data_parser/{PARSER}",
            "accounting_storage": "",
        },
        "client": {"source": "", "user": "", "group": ""},
        "command": [call.verb, *call.words],
        "slurm": {
            "version": {"major": major, "micro": micro, "minor": minor},
            "release": SLURM_VERSION,
            "cluster": cluster,
        },
    }
    write_json({**content, "meta": meta, "errors": [], "warnings": []})


def write_jobs(call: Invocation, rows: Sequence[JobRow], now: float) -> None:
    """Write the document of squeue and scontrol show job."""
    from overspan.bridge.listings.fields import job_documents
    from overspan.bridge.listings.values import number

    content = {
        "jobs": job_documents(rows, now),
        "last_backfill": number(int(now)),
        "last_update": number(int(now)),
    }
    write_document(call, content, rows[0].cluster if rows else "")
