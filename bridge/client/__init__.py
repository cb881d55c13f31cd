"""The client of the daemon, for the commands, the terminal UI and Python programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overspan.bridge.client.client import Client
from overspan.bridge.client.records import JobFilter, Listing, QueueChanges, Stale
from overspan.bridge.listings.rows import JobRow, StepRow

if TYPE_CHECKING:
    from overspan.bridge.client.job_handle import JobHandle
    from overspan.bridge.client.messages import (
        Accepted,
        Cancelled,
        CancelOrder,
        LogPart,
        LogSelection,
        Outcome,
        SentForm,
        Stream,
        StreamKey,
        Submission,
        SubmitOptions,
        Transition,
        Variable,
    )

__all__ = [
    "Accepted",
    "CancelOrder",
    "Cancelled",
    "Client",
    "JobFilter",
    "JobHandle",
    "JobRow",
    "Listing",
    "LogPart",
    "LogSelection",
    "Outcome",
    "QueueChanges",
    "SentForm",
    "Stale",
    "StepRow",
    "Stream",
    "StreamKey",
    "Submission",
    "SubmitOptions",
    "Transition",
    "Variable",
]


def __getattr__(name: str) -> Any:
    # Commands that only list pay for nothing else.
    if name == "JobHandle":
        from overspan.bridge.client.job_handle import JobHandle

        return JobHandle
    if name in __all__:
        from overspan.bridge.client import messages

        return getattr(messages, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
