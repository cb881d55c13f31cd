"""The commands. `main` is the entry point of `span`; each command is a module that is imported when it is run."""

from __future__ import annotations

from overspan.bridge.cli.program import main

__all__ = ["main"]
