"""Who decides about a launch while it runs."""

from __future__ import annotations

from enum import Enum


class Decider(str, Enum):
    """Who decides about a launch: stated once, in its handle and in the plan that goes beside the work."""

    SUPERVISOR = "supervisor"
    """A supervisor beside the work; its journal's events are copied."""
    DAEMON = "daemon"
    """The daemon; the adapter, or a supervisor that only executes, carries out single decisions."""
