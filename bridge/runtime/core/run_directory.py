"""The run directory of a job: names of its files, and the documents that the daemon's side leaves there.

plan.R.json     the job's facts at launch R, with its secrets (0600)
grant.R.json    the resources of launch R
journal.R.jsonl what happened; orders.R.jsonl: what is wanted
streams.jsonl   where each node run writes
times.jsonl     how long that was, and when
notice          what is about to end, for the work to read
names.R/ nodes/ logs/ scripts/
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.documents import decode
from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple

FORMAT = 1


class RunPlan(NamedTuple):
    """What to run, and who decides about it."""

    token: str
    job: Job
    environment: Mapping[str, str]
    cluster: str
    decider: Decider = Decider.SUPERVISOR
    access: str = ""
    """How commands inside the job reach the daemon, with its token; empty where they cannot."""


class Grant(NamedTuple):
    """Where to run it: (task, index, node, address, gpus) for each member, and how names are given."""

    at: float
    members: tuple[tuple[str, int, str, str, tuple[int, ...]], ...]
    isolation: str

    def event(self) -> Granted:
        """The journal's first event."""
        return Granted(self.at, self.members)


class RunDirectory:
    """Paths of one launch of one job.

    Where several supervisors share the directory, `part` is the folder in it that has the files of this one alone, in
    one that has those of its task. `outputs` is where logs and their lists are, if not in the directory itself: one
    that ends with its launch cannot have them.
    """

    def __init__(self, path: str, launch: int, part: str = "", outputs: str = "") -> None:
        self.path = os.path.abspath(path)
        self.launch = launch
        self.own = os.path.join(self.path, part) if part else self.path
        self.outputs = os.path.abspath(outputs) if outputs else self.path
        """The folder of the logs."""
        self.streams = os.path.join(os.path.dirname(self.own) if part else self.outputs, "streams.jsonl")
        """The list of where node runs write."""
        self.times = os.path.join(os.path.dirname(self.streams), "times.jsonl")
        """When what they write has grown."""

    def file(self, name: str) -> str:
        """The path of a file that each launch has of its own, such as `journal.jsonl`."""
        stem, dot, ending = name.partition(".")
        return os.path.join(self.own, f"{stem}.{self.launch}{dot}{ending}")

    def folder(self, name: str) -> str:
        """A folder of the run directory, made where it is missing."""
        path = os.path.join(self.path, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def logs(self) -> str:
        """The folder of the files that node runs write where the job names none, made where it is missing."""
        path = os.path.join(self.outputs, "logs")
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def read_plan(self) -> RunPlan:
        """The plan; ValueError when it is of another format, OSError when it is not there."""
        document = self._read("plan.json")
        try:
            job, token = decode(Job, document["job"]), str(document["token"])
            # Versions before told it by the place alone: parts in a folder of their own are the daemon's.
            default = Decider.SUPERVISOR if self.own == self.path else Decider.DAEMON
            decider = Decider(document.get("decider", default))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.file('plan.json')} holds no plan: {error!r}") from error
        cluster, access = str(document.get("cluster", "local")), str(document.get("access", ""))
        return RunPlan(token, job, document.get("environment", {}), cluster, decider, access)

    def read_grant(self) -> Grant:
        """The grant; errors as for the plan."""
        document = self._read("grant.json")
        try:
            members = tuple(
                (task, index, node, address, tuple(gpus)) for task, index, node, address, gpus in document["members"]
            )
            return Grant(document["at"], members, document.get("isolation", "env"))
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{self.file('grant.json')} holds no grant: {error!r}") from error

    def _read(self, name: str) -> Any:
        try:
            with open(self.file(name), encoding="utf-8") as file:
                document = json.load(file)
        except ValueError as error:
            raise ValueError(f"{self.file(name)} is damaged: {error}") from error
        if not isinstance(document, dict):
            raise ValueError(f"{self.file(name)} is damaged: it holds no object")
        if document.get("format") != FORMAT:
            raise ValueError(f"{self.file(name)} has format {document.get('format')}; this version reads {FORMAT}")
        return document
