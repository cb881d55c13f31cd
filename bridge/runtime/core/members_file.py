"""The members file: which members a group has now, for programs of groups whose members come and go.

It is replaced as a whole, so a reader sees one list or the next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from overspan.bridge.model.elastic import Peer
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import member_host, member_name
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core.environment import MEMBERS_FILE, domain_of, list_places

FORMAT = 1


def list_known(job: Job) -> list[Peer]:
    """The members that a launch knows. Until it was told of all, these are its own, and those that it was given."""
    if job.generation:
        return list(job.peers)
    states = {(peer.task, peer.index): peer.state for peer in job.peers}
    return [
        Peer(
            place.task,
            place.index,
            place.node,
            place.address,
            states.get((place.task, place.index), State.CONFIGURING.value),
        )
        for place in list_places(job)
    ]


def describe_members(job: Job) -> str:
    """The file's text for the work of a launch."""
    return render_members(list_known(job), job.generation, domain_of(job))


def name_peer(member: Peer, domain: str) -> str:
    """A member's name in its group's domain; the short one where the group has none (`inter_connection: false`)."""
    return member_host(member.task, member.index, domain) if domain else member_name(member.task, member.index)


def render_members(members: Iterable[Peer], generation: int, domain: str) -> str:
    """The file's text: one line of JSON."""
    rows = [
        {
            "name": name_peer(member, domain),
            "task": member.task,
            "index": member.index,
            "address": member.address,
            "node": member.node,
            "state": member.state,
        }
        for member in members
    ]
    document = {"format": FORMAT, "generation": generation, "members": rows}
    return json.dumps(document, separators=(",", ":")) + "\n"


def write_members(folder: str, text: str) -> None:
    """Replace the members file in a run directory, unless it has a later list: supervisors of a set share one.

    Raises OSError, and then leaves the one before.
    """
    path = os.path.join(folder, MEMBERS_FILE)
    if _read_generation(path) > json.loads(text)["generation"]:
        return
    temporary = f"{path}.{os.getpid()}.new"
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


def _read_generation(path: str) -> int:
    """The generation of the list in a file; -1 for none, or one that cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return int(json.load(file)["generation"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
