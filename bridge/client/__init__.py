"""The one way in to the daemon, for the commands, the terminal UI and Python programs."""

from __future__ import annotations

from overspan.bridge.client.client import Client
from overspan.bridge.client.handle import JobHandle
from overspan.bridge.client.records import (
    Accepted,
    Cancelled,
    CancelOrder,
    JobFilter,
    JobRow,
    Listing,
    LogPart,
    LogWish,
    Outcome,
    Stale,
    Stream,
    StreamKey,
    Submission,
    SubmitOptions,
    Transition,
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
    "LogWish",
    "Outcome",
    "Stale",
    "Stream",
    "StreamKey",
    "Submission",
    "SubmitOptions",
    "Transition",
]
