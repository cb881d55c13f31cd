"""The control channel between the supervisor and an agent: JSON lines on the standard streams of an srun.

down   {"launch": {...}}                       what to run, once
       {"signal": n, "scope": "tree"}          a signal for it
       {"terminate": true}                     Slurm ends the allocation: TERM, unless Slurm gave it already
       {"members": [[address, names], ...]}   the lines of the hosts file from now on
       {"part": {"file", "data"}}              lines for the file of notices, which this node has of its own
       {"container": {"mark"}}                the image's container is there; its holder has this mark
up     {"wanted": {"hosts", "home", "folder"}} the node's paths for the image's container, which is wanted now
       {"started": {"at", "sent"}}             the user's program runs
       {"ready": {"at", "sent"}}               the file that is awaited is there
       {"part": {"file", "data"}}              what it has written, in base64, where files are streamed (`file_parts`)
       {"told": {"signal"}}                    Slurm itself signalled this step
       {"ended": {"at", "sent", ...}}          how it ended; nothing is left of it

`at` and `sent` are by the node's clock; only their difference counts. End of file downwards ends everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple

LONGEST_LINE = 64 << 20
"""Bytes of a line that no peer of ours sends."""


class RemoteLaunch(NamedTuple):
    """One node run as its agent gets it. Paths are absolute; an empty one is not needed.

    `members` are the lines of the hosts file: an address and its names; none where names are not wanted.
    `environment` is the task's; with `bare` the submitter's own part of it did not travel, and the node's counts.
    `nodes` are those of the task, in the order of its members. `marker` is the file that a failed set-up leaves.
    `grace` is the seconds between TERM and KILL when the supervisor is gone. `image` are the words that run a program
    in the task's image (`images.wrap_words`), `carried` the variables that win over the image's own. `links` are those
    to what was brought from object stores, which have to be seen on the node. `server`, `mounted` and `note` are as of
    `gated_child.NodeLaunch`.

    Where the nodes share no folder, the agent writes `files` into its folder, and unpacks the `parcel` of inline files
    below it; `node_staging.FOLDER_PLACEHOLDER` stands for that folder in paths. `mounts` are links to make, by their
    targets. The agent of a `streamed` node run sends its output, and a message when the file `awaited` is there, for
    which it looks every `period` seconds.
    """

    key: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append: bool = False
    folders_awaited: bool = False
    umask: Optional[int] = None
    hostname: str = ""
    members: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bare: bool = False
    nodes: tuple[str, ...] = ()
    marker: str = ""
    grace: float = 30.0
    image: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    mounts: Mapping[str, str] = {}
    streamed: bool = False
    parcel: str = ""
    awaited: str = ""
    period: float = 0.5
    links: Mapping[str, str] = {}
    server: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    note: str = ""


_WORDS = ("nodes", "image", "carried", "server", "mounted")


def encode_line(document: Mapping[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def encode_launch(launch: RemoteLaunch) -> bytes:
    """The line that tells an agent what to run."""
    return encode_line({"launch": launch._asdict()})


def decode_launch(document: Any) -> RemoteLaunch:
    """The launch of such a line; ValueError when it is none. Fields of a later version are dropped."""
    try:
        fields = {name: document[name] for name in RemoteLaunch._fields if name in document}
        fields["argv"] = tuple(fields["argv"])
        fields.update((name, tuple(fields.get(name, ()))) for name in _WORDS)
        fields["members"] = read_members(fields.get("members", ()))
        return RemoteLaunch(**fields)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a launch: {error}") from None


def read_members(lines: Sequence[Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The lines of a hosts file as a message has them."""
    return tuple((str(address), tuple(names)) for address, names in lines)


class LineReader:
    """Puts the bytes of one side together to messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete now; what is no message is passed over. ValueError for an endless line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError("a line of the control channel has no end")
        messages = []
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                messages.append(message)
        return messages
