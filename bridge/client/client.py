"""The client of the daemon, for the commands, the terminal UI and Python programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overspan.bridge.client import autostart
from overspan.bridge.client.connection import ConnectionClosed
from overspan.bridge.client.records import JobFilter, Listing, QueueChanges, list_asked, read_changes, read_listing
from overspan.bridge.client.transport import DaemonTransport, foreign, make_query, quote_part
from overspan.bridge.model.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from typing import Unpack  # novm

    from overspan.bridge.client.cluster_calls import CacheCalls, ReachCalls, VolumeCalls

    # What listings do not need is imported where it is used: it would cost each command 2 ms.
    from overspan.bridge.client.job_handle import JobHandle
    from overspan.bridge.client.line_map_calls import MapOptions
    from overspan.bridge.client.messages import (
        Accepted,
        Cancelled,
        CancelOrder,
        LogFinds,
        LogPart,
        LogSearch,
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
    from overspan.bridge.client.storage import StorageCalls, TransferStep

POLL_SECONDS = 30.0
"""How long the daemon may keep a `wait` open."""
SILENT_SECONDS = 60.0
"""Silence after which a hold on an allocation counts as lost; the daemon says something every 15 s."""
_PLACE = ("environment", "directory", "umask", "uid", "gid", "host")
"""The fields of a submission that tell where a crontab was installed."""
_ALL_JOBS = JobFilter()
_NO_CHANGES: Mapping[str, str] = {}
_LOST = "whether the job was taken is not known; look with `span squeue`"


class Client(DaemonTransport):
    """A synchronous client of the user's daemon; it starts the daemon on first use.

    Every method raises Unreachable when there is no daemon and none can be started, and the error that the daemon
    answers otherwise (see overspan.bridge.model.errors). Not for use by several threads at once.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- submitting ---------------------------------------------------------------------------------------------------

    def submit(self, job: str | os.PathLike[str] | Mapping[str, Any], **options: Unpack[SubmitOptions]) -> JobHandle:
        """Submit a job file or batch script: a path, the text itself (anything with a newline) or a mapping.

        The job is stored when this returns. Raises InvalidRequest with file, line and column for a wrong job.
        """
        from overspan.bridge.client.job_handle import JobHandle
        from overspan.bridge.client.submission import make_submission

        accepted = self.send(make_submission(job, options))
        if accepted.schedule:
            raise InvalidRequest(
                f"the file has `cron`: it is now the schedule c{accepted.schedule}, which is no job",
                remedy="submit such files with Client.send; Client.delete_schedule takes it back",
            )
        return JobHandle(self, accepted.id, accepted)

    def job(self, ref: int | str) -> JobHandle:
        """A handle on an existing job; raises NotFound when there is none."""
        from overspan.bridge.client.job_handle import JobHandle

        return JobHandle(self, int(self.show(str(ref))["id"]))

    def send(self, submission: Submission, follow: Callable[[Iterable[TransferStep]], Any] = list) -> Accepted:
        """Submit what has been prepared; `submit` is the easy form.

        What the job is to find in a bucket is sent there first; `follow` reads how far that is, to the end.
        """
        from overspan.bridge.client.messages import accepted_from_document
        from overspan.bridge.client.submission import list_left_out, submission_document

        body = submission_document(submission, self.environment)
        answer = self._post_once("/v1/jobs", body, _LOST)
        notes: list[str] = []
        if answer.get("uploads"):
            notes = self.storage.upload(answer["uploads"], follow)
            answer = self._post_once("/v1/jobs", {**body, "uploads": "done"}, _LOST)
        accepted = accepted_from_document(answer)
        left_out = list_left_out(self.environment)
        noted = (f"variables that are not UTF-8 text are left out: {', '.join(left_out)}",) if left_out else ()
        return accepted._replace(notes=(*accepted.notes, *notes, *noted))

    def resubmit(self, ref: str, failed: bool = False, changes: Mapping[str, str] = _NO_CHANGES) -> Accepted:
        """Submit a job again as a new one; of an array, with `failed`, only the elements that failed.

        `changes` are values of options of sbatch by OPTION or TASK.OPTION: {"time": "2h", "trainer.mem": "32G"}.
        """
        from overspan.bridge.client.messages import accepted_from_document

        target = f"/v1/jobs/{quote_part(ref)}/resubmit"
        # A daemon of an earlier version refuses a key that it does not know.
        body = {"failed": failed, **({"changes": dict(changes)} if changes else {})}
        return accepted_from_document(self._post_once(target, body, _LOST))

    def resubmit_values(self, ref: str) -> dict[str, str]:
        """What `resubmit` may change of a job, with its present values; empty for what is not set."""
        values = self._get(f"/v1/jobs/{quote_part(ref)}/resubmit")["values"]
        return {str(key): str(value) for key, value in values.items()}

    def plan(self, submission: Submission) -> tuple[str, tuple[str, ...]]:
        """The native form of a submission (a script, manifests) and notes about it; nothing is changed."""
        from overspan.bridge.client.submission import submission_document

        document = self._post("/v1/plan", submission_document(submission, self.environment))
        return str(document.get("text", "")), tuple(document.get("notes") or ())

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the job file."""
        document = self._get("/v1/schema")
        schema = document.get("schema")
        return schema if isinstance(schema, dict) else document

    # --- looking ------------------------------------------------------------------------------------------------------

    def queue(self, wanted: JobFilter = _ALL_JOBS) -> Listing:
        """Jobs that have not ended, or those in the states asked for."""
        return self._listing("/v1/queue", wanted)

    def queue_table(self, wanted: JobFilter = _ALL_JOBS) -> Listing:
        """The same as the header and lines of squeue's default table, or as rows where the daemon writes none."""
        return self._listing("/v1/queue", wanted, lines=1)

    def queue_changes(self, version: str = "", wanted: JobFilter = _ALL_JOBS, wait: float = 0) -> QueueChanges:
        """The rows that changed since a version, which an earlier answer had; waits for a change up to `wait` seconds.

        Everything, ended jobs too, for a version that the daemon does not know (`whole`). Raises Conflict for a daemon
        of another version that does not keep what changes.
        """
        asked = {name: ",".join(value) for name, value in wanted._asdict().items() if isinstance(value, tuple)}
        query = make_query({**asked, "extent": wanted.extent, "version": version, "wait": f"{wait:.3f}"})
        try:
            answer = self._request("GET", f"/v1/queue/changes{query}", timeout=self.timeout + wait)
            return read_changes(self._read(answer, listed=True))
        except NotFound:
            raise foreign("it does not tell what changes in the queue") from None
        except (LookupError, TypeError, ValueError) as error:
            raise foreign(f"its answer about the queue cannot be read: {error!r}") from None

    def history(self, wanted: JobFilter = _ALL_JOBS) -> Listing:
        """All jobs, finished ones too, newest last."""
        return self._listing("/v1/history", wanted)

    def show(self, ref: str) -> dict[str, Any]:
        """Everything known of one job: its facts, tasks and attempts. Raises NotFound."""
        document = self._get(f"/v1/jobs/{quote_part(ref)}")
        job = document["job"]
        return {**job, "now": document.get("now")} if isinstance(job, dict) else {}

    def script(self, ref: str) -> str:
        """The batch script, or job file, that a job was submitted with. Raises NotFound."""
        answer = self._request("GET", f"/v1/jobs/{quote_part(ref)}/script")
        return answer.read().decode(errors="surrogateescape")

    def sent(self, ref: str) -> SentForm:
        """What a job was sent to its cluster as, as far as something there keeps it; else as it would be sent now.

        Raises NotFound, Denied for another user's job.
        """
        from overspan.bridge.client.messages import SentForm

        # A text of many lines: the caller that shows it on a terminal cleans each of them.
        document = self._read(self._request("GET", f"/v1/jobs/{quote_part(ref)}/sent"))
        return SentForm(str(document["text"]), bool(document["was_sent"]), str(document["source"]))

    def variables(self, ref: str) -> list[Variable]:
        """The variables that a job's work is given by its submission; secrets are hidden. Errors as for `sent`."""
        from overspan.bridge.client.messages import Variable

        document = self._get(f"/v1/jobs/{quote_part(ref)}/variables")
        return [Variable(*(row.get(key) for key in Variable._fields)) for row in document["variables"]]

    def timeline(self, ref: str) -> list[Transition]:
        """Every change of a job's and its tasks' states, oldest first."""
        from overspan.bridge.client.messages import transition_from_document

        document = self._get(f"/v1/jobs/{quote_part(ref)}/timeline")
        return [transition_from_document(row) for row in document["rows"]]

    def events(self, since: int | None = None, follow: bool = True) -> Iterator[Transition]:
        """Changes of all jobs after sequence number `since` (None: from now on), as they happen with `follow`.

        A daemon that ends and comes back does not end the stream; it goes on behind the last event given.
        """
        from overspan.bridge.client.event_stream import read_events

        return read_events(self, since, follow)

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        """The logs a job has; with `times` also when each of them grew, as far as that is known."""
        from overspan.bridge.client.messages import stream_from_document

        rows = self._get(f"/v1/jobs/{quote_part(ref)}/streams{'?times=1' if times else ''}")["streams"]
        return [stream_from_document(row) for row in rows]

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Bytes of one log; a negative offset counts from the end. NotFound when there is none."""
        from overspan.bridge.client.messages import LogPart

        asked = {"task": key.task, "node": key.node, "attempt": key.attempt, "stream": key.stream}
        query = make_query({**asked, "offset": offset, "limit": limit})
        answer = self._request("GET", f"/v1/jobs/{quote_part(key.job or ref)}/logs{query}")
        data = answer.read()
        headers = answer.headers
        return LogPart(
            data=data,
            offset=int(headers.get("x-span-offset", max(offset, 0))),
            size=int(headers.get("x-span-size", max(offset, 0) + len(data))),
            path=_unquote(headers.get("x-span-path", "")),
            gap=int(headers.get("x-span-gap", 0)),
            over=headers.get("x-span-over", "0") == "1",
        )

    def search_log(self, ref: str, key: StreamKey, wanted: LogSearch) -> LogFinds:
        """Search one log from its end, as far as one request goes (a second). NotFound when there is none."""
        from overspan.bridge.client.messages import log_finds_from_document

        asked = {"task": key.task, "node": key.node, "attempt": key.attempt, "stream": key.stream}
        query = make_query({**asked, **wanted._asdict(), "invert": int(wanted.invert)})
        # Each character is a byte of the log: nothing is to be cleaned before it is one again.
        return log_finds_from_document(
            self._read(self._request("GET", f"/v1/jobs/{quote_part(key.job or ref)}/logs/search{query}"))
        )

    def logs(self, ref: str, wanted: LogSelection | None = None) -> Iterator[tuple[Stream, bytes]]:
        """The bytes of every log that is wished for, as (log, bytes); with `follow` until the job is over."""
        from overspan.bridge.client.log_reading import read_logs
        from overspan.bridge.client.messages import LogSelection

        return read_logs(self, ref, wanted or LogSelection())

    def wait(self, ref: str, timeout: float | None = None) -> Outcome:
        """Wait for the end of a job or task, at most `timeout` seconds; `over` tells which it was."""
        from overspan.bridge.client.messages import Outcome

        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL_SECONDS if end is None else max(0.0, min(POLL_SECONDS, end - time.monotonic()))
            target = f"/v1/jobs/{quote_part(ref)}/wait?timeout={left:.3f}"
            document = self._read(self._request("GET", target, timeout=left + self.timeout))
            fields = {key: document[key] for key in Outcome._fields if document.get(key) is not None}
            outcome = Outcome(**fields)
            if outcome.over or (end is not None and time.monotonic() >= end):
                return outcome

    # --- evaluations --------------------------------------------------------------------------------------------------

    def evals(self, ref: str) -> list[dict[str, Any]]:
        """What is evaluated of a job's checkpoints: each watch with its evaluations, their states and scores."""
        watches = self._get(f"/v1/jobs/{quote_part(ref)}/evaluations")["watches"]
        return [dict(watch) for watch in watches]

    def watches(self) -> list[dict[str, Any]]:
        """What is evaluated of the checkpoints of all jobs, newest first, with the evaluations counted by state."""
        return [dict(watch) for watch in self._get("/v1/watches")["watches"]]

    def run_evaluation(self, ref: str, checkpoint: str, evaluation: str = "") -> list[dict[str, Any]]:
        """Evaluate a checkpoint once more, by all evaluations of a job or the named one; the new ones."""
        body = {"checkpoint": checkpoint, "evaluation": evaluation}
        answer = self._post(f"/v1/jobs/{quote_part(ref)}/evaluations/run", body)
        return [dict(made) for made in answer["evaluations"]]

    def watch_checkpoints(self, ref: str, watch: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Evaluate the checkpoints of a job that exists; `watch` has the keys of `on_checkpoint`.

        Gives the evaluation's name, and notes. Raises InvalidRequest for what is wrong with it, Conflict where the job
        has an evaluation of that name.
        """
        from overspan.bridge.client.messages import Submission
        from overspan.bridge.client.submission import submission_document

        text = json.dumps({"on_checkpoint": dict(watch)})
        body = submission_document(Submission(kind="job_file", text=text, file="options"), self.environment)
        answer = self._post(f"/v1/jobs/{quote_part(ref)}/evaluations/watch", body)
        return str(answer["name"]), tuple(map(str, answer["notes"]))

    # --- pools --------------------------------------------------------------------------------------------------------

    def pools(self, name: str = "") -> list[dict[str, Any]]:
        """Every pool with its workers, or the one of that name. Raises NotFound."""
        return [dict(pool) for pool in self._get(f"/v1/pools/{quote_part(name)}" if name else "/v1/pools")["pools"]]

    def apply_pool(self, name: str, submission: Submission) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Make a pool of a pool file, or change the one of that name; how it stands, and notes."""
        from overspan.bridge.client.submission import submission_document

        body = submission_document(submission, self.environment)
        found = self._post_again(f"/v1/pools/{quote_part(name)}/apply", body)
        return dict(found["pool"]), tuple(map(str, found["notes"]))

    def resize_pool(self, name: str, low: int, high: int, worker_class: str = "") -> dict[str, Any]:
        """Change the lowest and the highest number of workers, or of those of a class; those that there are stay."""
        body = {"min_workers": low, "max_workers": high, "worker_class": worker_class}
        return dict(self._post_again(f"/v1/pools/{quote_part(name)}/resize", body)["pool"])

    def drain_pool(self, name: str, workers: Sequence[int] = ()) -> dict[str, Any]:
        """Give these workers, or all, no more jobs, and end each when it holds none; others take their places."""
        return dict(self._post(f"/v1/pools/{quote_part(name)}/drain", {"workers": list(workers)})["pool"])

    def delete_pool(self, name: str, jobs: str = "") -> int:
        """End a pool; `jobs` is cancel or requeue, where it has any. Gives how many it had."""
        return int(self._post(f"/v1/pools/{quote_part(name)}/delete", {"jobs": jobs})["jobs"])

    def map(
        self, command: str, lines: Iterable[str] | os.PathLike[str], pool: str, **options: Unpack[MapOptions]
    ) -> list[str | None]:
        """Run a command once for each line, by the workers of a pool, as `span map` does.

        Gives the results in the order of the lines, None for each that failed. Raises what `submit` raises, Conflict
        where another map is at the folder of the results or a job of the map is cancelled.
        """
        from overspan.bridge.client.line_map_calls import run_map

        return run_map(self, command, lines, pool, options)

    def worker_program(self) -> bytes:
        """The application that a worker of a pool is."""
        return self._request("GET", "/v1/worker-program").read()

    # --- changing jobs ------------------------------------------------------------------------------------------------

    def cancel(self, order: CancelOrder) -> Cancelled:
        """Cancel or signal jobs; what could not be done is listed, not raised. An order without a choice is refused."""
        if not order.refs and order.filter.empty:
            raise InvalidRequest("No job identification provided", remedy="name jobs, or filter with -u, -n, -p or -t")
        from overspan.bridge.client.messages import cancel_document, cancelled_from_document

        # A signal that is sent twice may be two to the program.
        send = self._post if order.signal else self._post_again
        return cancelled_from_document(send("/v1/cancel", cancel_document(order)))

    def hold(self, ref: str) -> None:
        """Keep a pending job from starting."""
        self._post_again(f"/v1/jobs/{quote_part(ref)}/hold", {})

    def release(self, ref: str) -> None:
        """End a hold."""
        self._post_again(f"/v1/jobs/{quote_part(ref)}/release", {})

    def requeue(self, ref: str, hold: bool = False) -> None:
        """End what runs of a job and put it back into the queue."""
        self._post(f"/v1/jobs/{quote_part(ref)}/requeue", {"hold": hold})

    def suspend(self, ref: str) -> None:
        """Stop what runs of a job, in place."""
        self._post_again(f"/v1/jobs/{quote_part(ref)}/suspend", {})

    def resume(self, ref: str) -> None:
        """Let a suspended job go on."""
        self._post_again(f"/v1/jobs/{quote_part(ref)}/resume", {})

    def top(self, ref: str) -> None:
        """Put a pending job before the user's other ones."""
        self._post_again(f"/v1/jobs/{quote_part(ref)}/top", {})

    def restart(self, ref: str, task: str = "") -> None:
        """Start one task again in place, or all."""
        self._post(f"/v1/jobs/{quote_part(ref)}/restart", {"task": task})

    def scale(self, ref: str, task: str, size: int | None) -> dict[str, Any]:
        """Change how many members an elastic task of a group has; None: as its file says, and more with room.

        The answer has its bounds, how many it is to have (`wanted`) and how many there are or come (`present`).
        """
        return self._post_again(f"/v1/jobs/{quote_part(ref)}/scale", {"task": task, "size": size})

    def update(self, ref: str, changes: Mapping[str, Any]) -> None:
        """Change a job.

        Keys: time_limit (seconds, None for none), priority, nice, begin, dependency (as --dependency), throttle,
        comment, name, partition. All are values, not differences: the order is sent again where the daemon goes away.
        """
        self._post_again(f"/v1/jobs/{quote_part(ref)}/update", dict(changes))

    # --- steps and allocations ----------------------------------------------------------------------------------------

    def prepare_step(
        self, ref: str, words: Sequence[str], *, own: bool = False, terminal: bool = False, alone: bool = False
    ) -> dict[str, Any]:
        """What to run for a step in a job: words of the step, and of the guard that takes signals for it.

        `words` are srun's; `own` tells that the job is an allocation for this step alone, `alone` that the
        daemon's own connection is not to be shared. Raises Conflict for a job that does not run, InvalidRequest for one
        that takes no steps, NotFound.
        """
        from overspan.bridge.client.submission import read_umask, submission_variables

        body = {
            "words": list(words),
            "environment": submission_variables(self.environment),
            "directory": os.getcwd(),
            "umask": read_umask(),
            "own": own,
            "terminal": terminal,
            "alone": alone,
        }
        return self._post(f"/v1/jobs/{quote_part(ref)}/step", body)

    def hold_allocation(self, ref: str) -> bool:
        """Hold an allocation until its job is over, which is True; False where the daemon went away before."""
        answer = self._request("GET", f"/v1/jobs/{quote_part(ref)}/allocation", timeout=SILENT_SECONDS)
        try:
            return any(line == b"over" for line in answer.lines())
        except (ConnectionClosed, OSError):
            return False
        finally:
            self.close()

    # --- schedules and crontabs ---------------------------------------------------------------------------------------

    def schedules(self) -> list[dict[str, Any]]:
        """Every schedule: id, name, schedule, timezone, next_due, last_job, counts and policies. Times are epoch."""
        return list(self._get("/v1/schedules")["schedules"])

    def pause_schedule(self, schedule_id: int) -> None:
        """Make no more runs of a schedule."""
        self._post_again(f"/v1/schedules/{schedule_id}/pause", {})

    def resume_schedule(self, schedule_id: int) -> None:
        """End a pause."""
        self._post_again(f"/v1/schedules/{schedule_id}/resume", {})

    def run_schedule(self, schedule_id: int) -> int:
        """Make a run now; its job's id."""
        lost = "whether the run was made is not known; look with `span cron list`"
        return int(self._post(f"/v1/schedules/{schedule_id}/run", {}, lost=lost)["id"])

    def delete_schedule(self, schedule_id: int) -> None:
        """Forget a schedule; jobs that it has made go on."""
        self._post(f"/v1/schedules/{schedule_id}/delete", {})

    def crontab(self) -> str:
        """The user's crontab. Raises NotFound when there is none."""
        return str(self._get("/v1/crontab")["text"])

    def install_crontab(self, text: str, file: str = "") -> list[int]:
        """Put a crontab in place of the former one; the schedules' ids, one for each entry.

        `file` names it in errors.
        """
        from overspan.bridge.client.messages import Submission
        from overspan.bridge.client.submission import submission_document

        document = submission_document(Submission(kind="script", text=""), self.environment)
        body = {name: document[name] for name in _PLACE}
        lost = "whether the crontab was installed is not known; look with `span cron -l`"
        return [
            int(number) for number in self._post("/v1/crontab", {"text": text, "file": file, **body}, lost=lost)["ids"]
        ]

    def remove_crontab(self) -> None:
        """Remove the user's crontab; jobs that it has made go on."""
        self._post("/v1/crontab/remove", {})

    @property
    def storage(self) -> StorageCalls:
        """Object stores, as the daemon reaches them."""
        from overspan.bridge.client.storage import StorageCalls

        return StorageCalls(self)

    @property
    def cache(self) -> CacheCalls:
        """What clusters keep of object stores."""
        from overspan.bridge.client.cluster_calls import CacheCalls

        return CacheCalls(self)

    @property
    def volumes(self) -> VolumeCalls:
        """Volumes that outlive jobs."""
        from overspan.bridge.client.cluster_calls import VolumeCalls

        return VolumeCalls(self)

    # --- the daemon and its clusters ----------------------------------------------------------------------------------

    def ping(self) -> dict[str, Any]:
        """The daemon's version, process, host, state folder, start time and problems."""
        return self._get("/v1/ping")

    def clusters(self) -> list[dict[str, Any]]:
        """The clusters: name, kind, default, state, since, message, jobs."""
        return list(self._get("/v1/clusters")["clusters"])

    def nodes(self, clusters: Sequence[str] = ()) -> dict[str, Any]:
        """Nodes of all clusters, or of those named: {now, clusters, nodes}."""
        return self._get("/v1/nodes" + make_query({"clusters": ",".join(clusters)}))

    def check(self, cluster: str) -> list[dict[str, Any]]:
        """What works on a cluster and what to do about the rest: what, works, seen, remedy."""
        return list(self._post(f"/v1/clusters/{quote_part(cluster)}/check", {})["findings"])

    @property
    def reach(self) -> ReachCalls:
        """Trials of the ways between clusters."""
        from overspan.bridge.client.cluster_calls import ReachCalls

        return ReachCalls(self)

    def login(self, cluster: str) -> dict[str, Any]:
        """What opens the way to a cluster: message, words of a command for the terminal, words of one that checks."""
        return self._post(f"/v1/clusters/{quote_part(cluster)}/login", {})

    def shell(
        self, ref: str, task: str = "", node: int = 0, command: Sequence[str] = (), *, terminal: bool = True
    ) -> dict[str, Any]:
        """What to run for a shell, or a command, at a member of a job: words, environment on top of one's own, place.

        Raises Conflict where nothing can be entered, NotFound, InvalidRequest.
        """
        body = {"task": task, "node": node, "command": list(command), "terminal": terminal}
        return self._post(f"/v1/jobs/{quote_part(ref)}/shell", body)

    def import_job(self, cluster: str, native: str) -> dict[str, Any]:
        """Watch a job that the cluster has: id, name, cluster, state. Raises Conflict when it is watched already."""
        lost = "whether the job was imported is not known; look with `span squeue`"
        return self._post(f"/v1/clusters/{quote_part(cluster)}/import", {"native": native}, lost=lost)

    def fsck(
        self,
        cluster: str,
        *,
        release: bool = False,
        installations: Sequence[str] = (),
        all_installations: bool = False,
    ) -> dict[str, Any]:
        """What launches have left on a cluster: installation, looked, launches, missing jobs.

        `release` removes what no job of this daemon wants any more, of other installations only those that are named.
        """
        body = {"release": release, "installations": list(installations), "all_installations": all_installations}
        return self._post(f"/v1/clusters/{quote_part(cluster)}/fsck", body)

    def shutdown(self) -> bool:
        """End the daemon, and wait for its end; jobs go on. False when none was running."""
        connection = autostart.connect(self.paths, self.timeout)
        if connection is None:
            return False
        self.close()
        self._connection = connection
        end = autostart.watch_end(connection.peer)
        try:
            self._post("/v1/shutdown", {})
            self.close()
            autostart.await_end(end)
        finally:
            if end >= 0:
                os.close(end)
        return True

    def _listing(self, path: str, wanted: JobFilter, lines: int | None = None) -> Listing:
        return read_listing(self._get(path + make_query(list_asked(wanted, lines))), wanted.extent)

    def _sibling(self) -> Client:
        """A client of the same daemon with a connection of its own, for an answer that does not end."""
        sibling = Client(environment=self.environment, autostart=self.autostart, timeout=self.timeout)
        sibling.for_terminal = self.for_terminal
        return sibling


def _unquote(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text)
