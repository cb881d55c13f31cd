"""Which members a group has now, from the file that each of them has."""

from __future__ import annotations

import json
import os


def list_running(task: str) -> list[tuple[str, str]]:
    """The names and addresses of a task's members that run, in their order; empty before the first list."""
    try:
        with open(os.environ["OVERSPAN_MEMBERS_FILE"], encoding="utf-8") as file:
            members = json.load(file)["members"]
    except (OSError, ValueError):
        return []
    return [(each["name"], each["address"]) for each in members if each["task"] == task and each["state"] == "RUNNING"]
