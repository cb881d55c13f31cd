"""A lab for the places: nodes, clusters, schedules and past jobs, as the daemon tells them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tests.unit.tui.fake_source import ANY, NOW, FakeSource, evaluation, job, watch

from overspan.bridge.client.records import JobFilter, Listing
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import NotFound

HOSTILE = "\x1b]0;owned\x07\x9b31m[bold]x[/]\u202e公\n"
"""A text that sets a terminal's title, colours it, is markup, turns the writing round, is wide and ends its line."""


def node(name: str, cluster: str = "leo", partition: str = "gpu", state: str = "mixed", **more: Any) -> dict[str, Any]:
    """A node with some of everything in use."""
    use = {"cpus": 64.0, "cpus_used": 40.0, "memory": 262144, "memory_used": 100000, "gpus": 8, "gpus_used": 6.0}
    rest = {"gpu_kind": "a100", "reason": "", "default": partition == "gpu", "time_limit": 86400}
    return {"cluster": cluster, "name": name, "partition": partition, "state": state, **use, **rest, **more}


def cluster(name: str, kind: str = "slurm", state: str = "up", **more: Any) -> dict[str, Any]:
    """A cluster that answered two seconds ago."""
    told = {"default": False, "since": None, "message": "", "jobs": 0, "answered_at": NOW - 2, "answer_seconds": 0.034}
    return {"name": name, "kind": kind, "state": state, **told, "calls_left": "", **more}


def schedule(number: int, name: str = "nightly", **more: Any) -> dict[str, Any]:
    """A schedule that ran yesterday and is due in two hours."""
    times = {"schedule": "0 3 * * mon-fri", "timezone": "Europe/Berlin", "missed": "once", "overlap": "skip"}
    counts = {"runs": 41, "missed_runs": 0, "skipped_runs": 0, "refused_runs": 0, "owed_runs": 0}
    last = {"last_run_at": NOW - 80000, "last_job": 812, "last_state": "COMPLETED", "message": "", "message_at": None}
    facts = {"user": "ana", "cluster": "leo", "paused": False, "next_due": NOW + 7300}
    return {"id": number, "name": name, **facts, **times, **counts, **last, **more}


def pool(name: str, *workers: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pool of one to four workers with seven jobs that wait."""
    sizes = {"min_workers": 1, "max_workers": 4, "wanted": len(workers), "generation": 1}
    counts = {"waiting": 7, "running": sum(len(worker["jobs"]) for worker in workers)}
    rest = {"user": "ana", "state": "READY", "message": "", "created_at": NOW - 90000}
    return {"name": name, "workers": list(workers), **sizes, **counts, **rest, **more}


def worker(pool: str, job: int, *jobs: int, **more: Any) -> dict[str, Any]:
    """A worker that has been ready for an hour and holds these jobs."""
    place = {"cluster": "leo", "node": "n1", "generation": 1, "since": NOW - 3600, "ends_at": None, "reason": ""}
    return {"job": job, "name": f"{pool}-{job}", "state": "READY", "jobs": list(jobs), **place, **more}


def select(rows: Sequence[JobRow], wanted: JobFilter) -> list[JobRow]:
    """What the daemon selects of a history: what was submitted in time, the newest by id, in the order of listings."""
    chosen = [
        row
        for row in rows
        if (not wanted.users or row.user in wanted.users)
        and (not wanted.names or row.name in wanted.names)
        and (not wanted.states or row.state in wanted.states)
        and (wanted.until is None or (row.submitted_at or 0.0) < wanted.until)
        and (wanted.since is None or row.ended_at is None or row.ended_at >= wanted.since)
    ]
    newest = sorted({row.id for row in chosen})[-(wanted.limit or len(rows)) :]
    kept = [row for row in chosen if row.id in set(newest)]
    kept.sort(key=lambda row: (row.array_id or row.id, row.id, row.task_offset or 0))
    return kept[-(wanted.limit or len(rows)) :]


class Lab(FakeSource):
    """A daemon with clusters: each may be silent, and each question may wait for its gate."""

    def __init__(self, rows: Sequence[JobRow] = ()) -> None:
        super().__init__(rows)
        self.silent: dict[str, str] = {}
        """Why a cluster does not tell its nodes."""
        self.findings: dict[str, list[dict[str, Any]]] = {}
        self.logins: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.gates: dict[str, threading.Event] = {}
        """Questions that are answered once their gate is open, by their name or their cluster's."""

    def history(self, wanted: JobFilter = ANY) -> Listing:
        """As the client."""
        self._answer("history", wanted)
        return Listing(self.now, select(self.past, wanted), self.stale)

    def nodes(self, clusters: Sequence[str] = ()) -> dict[str, Any]:
        """As the client."""
        self._answer("nodes", tuple(clusters), *clusters)
        answers = [{"name": name, "message": self.silent.get(name, "")} for name in clusters]
        told = [each for each in self.node_document["nodes"] if each["cluster"] in clusters]
        found = [each for each in told if each["cluster"] not in self.silent]
        return {**self.node_document, "clusters": answers, "nodes": found}

    def clusters(self) -> list[dict[str, Any]]:
        """As the client."""
        self._answer("clusters", None)
        return self.cluster_list

    def watches(self) -> list[dict[str, Any]]:
        """As the client."""
        self._answer("watches", None)
        return super().watches()

    def evals(self, ref: str) -> list[dict[str, Any]]:
        """As the client."""
        found = super().evals(ref)
        self._answer("evals", ref)
        return found

    def schedules(self) -> list[dict[str, Any]]:
        """As the client."""
        self._answer("schedules", None)
        return self.schedule_list

    def check(self, cluster: str) -> list[dict[str, Any]]:
        """As the client."""
        self._answer("check", cluster, cluster)
        if cluster not in self.findings:
            raise NotFound(f"the cluster {cluster} cannot be checked", remedy="name another one")
        return self.findings[cluster]

    def login(self, cluster: str) -> dict[str, Any]:
        """As the client."""
        return self.logins.get(cluster) or super().login(cluster)

    def count(self, name: str) -> int:
        """How often something was asked."""
        return sum(asked == name for asked, _ in self.asked)

    def _answer(self, name: str, about: object, *also: str) -> None:
        """Note a question, wait for its gates, and fail while the daemon is lost."""
        self.asked.append((name, about))
        for each in (name, *also):
            if each in self.gates:
                self.gates[each].wait(10)
        if self.lost is not None:
            raise self.lost


def make_watches() -> list[dict[str, Any]]:
    """Two evaluations of job 1: one that goes on, with all that may become of a checkpoint, and one that is over."""
    scores = {100: 0.31, 200: 0.44, 300: 0.52, 400: 0.49, 500: 0.58}
    done = [
        evaluation(number, step, score=score, best=step == 500, values={"accuracy": score, "loss": 2.5 - score})
        for number, (step, score) in enumerate(scores.items(), 1)
    ]
    rest = (
        evaluation(6, 600, "FAILED", reason="NonZeroExitCode"),
        evaluation(7, 700, trouble="it left no file result.json"),
        evaluation(8, 800, "REFUSED", trouble="Requested node configuration is not available"),
        evaluation(9, 900, "RUNNING"),
        evaluation(10, 1000, "PENDING", reason="Resources"),
        evaluation(11, 1100, "WAITING"),
    )
    incomplete = [{"checkpoint": "step_1200", "why": "its marker DONE is not there"}]
    loss = [evaluation(number, number * 10, score=3.0 - number / 10, best=number == 23) for number in (21, 22, 23)]
    return [
        watch(1, "gsm8k", *done, *rest, incomplete=incomplete, passed=3),
        watch(1, "held-out", *loss, lowest_is_best=True, closed=True),
    ]


def make_lab() -> Lab:
    """A lab of two Slurm clusters and a Kubernetes that does not answer."""
    source = Lab([job(1, node_list="n1,c1"), job(2, cluster="kube", node_list="k1"), job(3, state="PENDING")])
    source.cluster_list = [
        cluster("leo", default=True, jobs=2, calls_left="24 of 30, 2/s"),
        cluster("kube", "kubernetes", "stale", since=NOW - 130, message="Unreachable: no route to host", jobs=1),
        cluster("old", state="idle", answered_at=None, answer_seconds=None),
    ]
    source.node_document["nodes"] = [
        node("n1"),
        node("n2", state="idle", cpus_used=0.0, memory_used=0, gpus_used=0.0),
        node("n3", state="drained", reason="bad fan since Monday"),
        node("c1", partition="cpu", gpus=0, gpus_used=0, gpu_kind="", state="allocated", cpus_used=64.0),
    ]
    source.silent["kube"] = "no route to host"
    source.schedule_list = [
        schedule(3, missed_runs=2, owed_runs=1, skipped_runs=1, message="2 runs were missed", message_at=NOW - 100),
        schedule(4, "weekly", paused=True, next_due=None, last_job=None, last_state="", last_run_at=None, runs=0),
    ]
    source.pool_list = [
        pool(
            "gpu",
            worker("gpu", 41, 57, 58, ends_at=NOW + 7300),
            worker("gpu", 42, state="SILENT", cluster="kube", node="k1"),
            worker("gpu", 43, state="PENDING", node="", reason="Priority"),
        ),
        pool("bare", state="FAILED", waiting=0, message="worker 9 ended as FAILED before it was ready"),
    ]
    source.evaluations_of = {"1": make_watches()}
    source.past = [
        job(number, state="FAILED" if number % 3 == 0 else "COMPLETED", ended_at=NOW - 9000 + number * 100)
        for number in range(1, 7)
    ]
    source.findings["leo"] = [
        {"what": "Slurm", "works": True, "seen": "24.05, cluster leo", "remedy": ""},
        {"what": "user namespaces", "works": False, "seen": "on n1", "remedy": "ask the site for bwrap"},
    ]
    source.logins["leo"] = {"message": "", "words": ["ssh", "-M", "leo"], "check": []}
    return source
