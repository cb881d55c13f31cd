"""Slurm's JSON: the frame of every document, and numbers as its data parser v0.0.40 writes them.

Shapes: slurm 23.11, src/plugins/data_parser/v0.0.40. JSON is YAML too, so --yaml gives the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write_json
from overspan.bridge.model.errors import InvalidRequest

PARSER = "v0.0.40"
Document = dict[str, Any]


def check_parser(call: Invocation) -> None:
    """Raise InvalidRequest where another shape is asked for than there is."""
    for word in call.words:
        name, _, value = word.partition("=")
        if name in ("--json", "--yaml") and value not in ("", "list", PARSER):
            raise InvalidRequest(f"Unable to find plugin: data_parser/{value}", remedy=f"{name}={PARSER} is there")


def write_document(call: Invocation, content: Mapping[str, Any], cluster: str = "") -> None:
    """Write a document with its meta block, errors and warnings. Raises InvalidRequest for another parser."""
    from overspan.bridge.cli.commands.version import SLURM_VERSION

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


def number(value: float | None, infinite: bool = False) -> Document:
    """A number that may be missing or without bound."""
    if infinite:
        return {"set": False, "infinite": True, "number": 0}
    if value is None:
        return {"set": False, "infinite": False, "number": 0}
    return {"set": True, "infinite": False, "number": int(value) if value == int(value) else value}


def exit_status(code: int, signal: int) -> Document:
    """How a program ended."""
    import signal as signals

    name = ""
    if signal:
        try:
            name = signals.Signals(signal).name.removeprefix("SIG")
        except ValueError:
            name = "INVALID"
    status = "SIGNALED" if signal else "ERROR" if code else "SUCCESS"
    return {
        "status": [status],
        "return_code": number(code),
        "signal": {"id": number(signal or None), "name": name},
    }
