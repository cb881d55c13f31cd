"""What the client sends and returns besides listings: submissions, orders, logs, changes of state.

Listings have a module of their own (`records`), because each class here would cost the busiest commands 0.1 ms.
No future import here: NamedTuple would compile each annotation.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, TypedDict

from overspan.bridge.client.records import JobFilter


class SubmitOptions(TypedDict, total=False):
    """What a submission changes about a job file. `overrides` are `path=value` texts, as `--set` takes them."""

    cluster: str
    name: str
    hold: bool
    overrides: Sequence[str]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    args: Sequence[str]
    """For a batch script: the words after `sbatch`, before the script (options) as the user would write them."""


class Submission(NamedTuple):
    """The body of a submission; see `Client.send`."""

    kind: str
    text: str
    file: str = ""
    argv: Sequence[str] = ()
    command: Sequence[str] = ()
    cluster: str = ""
    name: str = ""
    hold: bool = False
    overrides: Sequence[str] = ()
    env: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    test_only: bool = False
    files: Mapping[str, str] = {}
    """Texts of files that the text names, by absolute path; None are looked for where these are given."""


class Accepted(NamedTuple):
    """An answered submission: it is stored and will run. `notes` are options that have no effect here.

    `options` are a script's effective client options (wait, parsable, quiet, clusters); `text` answers `--test-only`.
    """

    id: int
    task_ids: tuple[str, ...] = ()
    name: str = ""
    cluster: str = ""
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    text: str = ""
    schedule: int = 0
    """The schedule that was made of a file with `cron`; there is no job then, and `id` is 0."""
    next_due: Optional[float] = None


class Outcome(NamedTuple):
    """A job's state and how it ended; `over` is False while it can still change."""

    over: bool
    state: str
    exit_code: int = 0
    signal: int = 0


class CancelOrder(NamedTuple):
    """What to cancel or signal: `refs`, or every live job that `filter` lets pass, or both."""

    refs: tuple[str, ...] = ()
    task: str = ""
    filter: JobFilter = JobFilter()
    signal: str = ""
    batch_only: bool = False
    full: bool = False
    flush: bool = True
    """Whether data that is on its way to an object store is waited for."""


class FailedOrder(NamedTuple):
    """An id for which an order could not be given, and why."""

    ref: str
    code: str
    message: str
    remedy: str = ""


class Cancelled(NamedTuple):
    """Which ids were cancelled, and which were not."""

    done: tuple[str, ...]
    errors: tuple[FailedOrder, ...]
    note: str = ""


_FILTERS = ("states", "users", "names", "partitions", "clusters", "accounts", "qos", "nodes")
"""What the daemon can filter a cancel by."""


def cancel_document(order: CancelOrder) -> dict[str, Any]:
    """The body of a request to cancel."""
    return {
        "refs": list(order.refs),
        "task": order.task,
        "filters": {name: list(getattr(order.filter, name)) for name in _FILTERS},
        "signal": order.signal or None,
        "batch_only": order.batch_only,
        "full": order.full,
        # A daemon of the version before knows no such key.
        **({} if order.flush else {"flush": False}),
    }


def cancelled_from_document(document: Mapping[str, Any]) -> Cancelled:
    """The daemon's answer to a request to cancel."""
    errors = []
    for row in document.get("errors") or ():
        error = row.get("error") or {}
        texts = (str(error.get(name, "")) for name in ("code", "message", "remedy"))
        errors.append(FailedOrder(str(row.get("ref", "")), *texts))
    done = tuple(str(ref) for ref in document.get("done") or ())
    return Cancelled(done, tuple(errors), str(document.get("note") or ""))


def is_element(job: str) -> bool:
    """Whether a job that is asked for a log is an element of an array, which goes by its own name."""
    return "_" in job


def name_member(job: str, task: str, node: Optional[int]) -> str:
    """Whose log it is, as people read it: `trainer-0`, or the element `42_1` of an array."""
    return job if is_element(job) else f"{task}-{node or 0}"


class StreamKey(NamedTuple):
    """Which log of a job: None and empty mean the only one or the newest; `stream` is output or error."""

    task: str = ""
    node: Optional[int] = None
    attempt: Optional[int] = None
    stream: str = "output"
    job: str = ""


class Stream(NamedTuple):
    """A log that exists: where it is and its size in bytes.

    `job` is the job that it is asked of, where that is another one: an element of the array that is read, or a further
    member of an elastic task of the group.

    `marks` are (time, size) pairs: it had at least so many bytes then. None where that was not recorded or asked for.
    `trouble` is why it cannot be read now; empty where it can.
    """

    task: str
    node: int
    attempt: int
    stream: str
    path: str = ""
    size: int = 0
    job: str = ""
    marks: Optional[tuple[tuple[float, int], ...]] = None
    trouble: str = ""


def stream_from_document(document: Mapping[str, Any]) -> Stream:
    """Read a log's row; unknown keys are left out."""
    known = {key: document[key] for key in Stream._fields if key in document}
    marks = known.pop("marks", None)
    return Stream(**known, marks=None if marks is None else tuple((at, size) for at, size in marks))


class LogPart(NamedTuple):
    """Bytes of a log from `offset`; `over` when no more can come."""

    data: bytes
    offset: int
    size: int
    path: str = ""
    over: bool = False
    gap: int = 0
    """Bytes that are lost before `offset`."""


class LogSearch(NamedTuple):
    """What to search for in a log: the newest `limit` lines that match, of the bytes from `begin` to `end`.

    `invert` wants lines that do not match.
    """

    pattern: str
    invert: bool = False
    begin: int = 0
    end: Optional[int] = None
    limit: int = 1000


class FoundLine(NamedTuple):
    """A line of a log: where it is, and its first bytes."""

    begin: int
    end: int
    data: bytes


class LogFinds(NamedTuple):
    """Lines that match, the newest first. The log was searched from `begin` to `end`; a next search ends at `begin`.

    `first` is the first byte that there is still; `trouble` says why the search cannot go on.
    """

    lines: Sequence[FoundLine]
    begin: int
    end: int
    size: int
    first: int = 0
    path: str = ""
    trouble: str = ""

    @property
    def whole(self) -> bool:
        """Whether there is nothing left to search before `begin`."""
        return self.begin <= self.first or bool(self.trouble)


def log_finds_from_document(document: Mapping[str, Any]) -> LogFinds:
    """Read the answer to a search; each character of a text is a byte."""
    known = {key: document[key] for key in LogFinds._fields if key in document and key != "lines"}
    return LogFinds([FoundLine(at, end, text.encode("latin-1")) for at, end, text in document["lines"]], **known)


class LogSelection(NamedTuple):
    """Which logs to read: None and empty fields choose all, an `attempt` of None the newest of each node, -1 every one.

    `stream` is output, error or empty for both; `tail` is how many last lines to begin with, None for all;
    `follow` goes on until the job is over, newer attempts included. `times` merges what is there by the time at which
    it came, and `since` (epoch seconds) leaves out what is older.
    """

    task: str = ""
    node: Optional[int] = None
    attempt: Optional[int] = None
    stream: str = ""
    tail: Optional[int] = None
    follow: bool = False
    times: bool = False
    since: Optional[float] = None


class Transition(NamedTuple):
    """A change of state, of a job (`task` empty) or a task."""

    seq: int = 0
    job_id: int = 0
    task: str = ""
    at: float = 0.0
    start: str = ""
    end: str = ""
    reason: str = ""
    cause: str = ""
    text: str = ""


class SentForm(NamedTuple):
    """What a job was sent to its cluster as: a script, manifests, a plan; secrets are hidden.

    `was_sent` is False for what was rendered anew, or was not sent yet; `source` says in words where it is from.
    """

    text: str
    was_sent: bool
    source: str


class Variable(NamedTuple):
    """A variable that a job's work is given by its submission; `task` is empty where it is for all of them.

    `origin` is `task` (the job file, --env), `secret`, or `submission` for the submitter's own environment.
    Of a `hidden` one the value is not told: it is a secret, or looks like one.
    """

    task: str
    name: str
    value: str
    origin: str
    hidden: bool = False


def transition_from_document(document: Mapping[str, Any], job_id: int = 0) -> Transition:
    """Read a timeline row; unknown keys are left out."""
    known = {key: document[key] for key in Transition._fields if document.get(key) is not None}
    known.setdefault("job_id", job_id)
    return Transition(**known)


def accepted_from_document(document: Mapping[str, Any]) -> Accepted:
    """Read the answer to a submission."""
    return Accepted(
        id=int(document.get("id") or 0),
        task_ids=tuple(document.get("task_ids") or ()),
        name=str(document.get("name") or ""),
        cluster=str(document.get("cluster") or ""),
        notes=tuple(document.get("notes") or ()),
        options=document.get("options") or {},
        text=str(document.get("text") or ""),
        schedule=int(document.get("schedule") or 0),
        next_due=document.get("next_due"),
    )
