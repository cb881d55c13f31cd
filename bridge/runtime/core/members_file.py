"""The members file: which members a group has now, for programs of groups whose members come and go.

It is replaced as a whole, so a reader sees one list or the next.
"""

from __future__ import annotations

import json
import os

from overspan.bridge.model.job import Job
from overspan.bridge.model.names import member_host
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core.environment import MEMBERS_FILE, domain_of, group_of, list_places

FORMAT = 1


def render_members(job: Job) -> str:
    """The file's text. Until its group's members were told, a launch knows its own, and those that it was given."""
    domain = domain_of(job)
    states = {(peer.task, peer.index): peer.state for peer in job.peers}
    known = [place for place in list_places(job) if not job.generation or (place.task, place.index) in states]
    members = [
        {
            "name": member_host(place.task, place.index, domain),
            "task": place.task,
            "index": place.index,
            "address": place.address,
            "node": place.node,
            "state": states.get((place.task, place.index), State.CONFIGURING.value),
        }
        for place in known
    ]
    document = {"format": FORMAT, "generation": job.generation, "group": group_of(job), "members": members}
    return json.dumps(document, indent=1) + "\n"


def write_members(folder: str, text: str) -> None:
    """Replace the members file in a run directory. Raises OSError, and then leaves the one before."""
    path = os.path.join(folder, MEMBERS_FILE)
    temporary = f"{path}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
