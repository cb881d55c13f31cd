"""Request bodies, with bounds for everything that a client can make large."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from overspan.bridge.model.documents import share_texts
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.dependencies import parse_dependency

MAX_BODY = 8 << 20
"""Bytes of a request body."""
LATEST = 253402214400
"""The end of the year 9999, epoch seconds."""
LONGEST = 0xFFFFFFF0 * 60
"""Slurm's longest time limit, seconds."""


def no_nul(text: str) -> str:
    """The text; ValueError for a NUL, which nothing that it may become can have."""
    if "\0" in text:
        raise ValueError("a NUL character cannot be in it")
    return text


def _variables(values: dict[str, str]) -> dict[str, str]:
    for name in values:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name of a variable")
    return share_texts(values)


Word = Annotated[str, Field(max_length=4096), AfterValidator(no_nul)]
Name = Annotated[str, Field(max_length=256), AfterValidator(no_nul)]
Long = Annotated[str, Field(max_length=1 << 20), AfterValidator(no_nul)]
Words = Annotated[list[Long], Field(max_length=20_000)]
Names = Annotated[list[Name], Field(max_length=10_000)]
Variables = Annotated[dict[Word, Long], Field(max_length=20_000), AfterValidator(_variables)]
Number = Annotated[int, Field(ge=0, le=2**32 - 1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class RequestBody(BaseModel):
    """Any body: a format number, and no keys but the known ones."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal[1] = 1


class SubmissionBody(RequestBody):
    """A job file or batch script, and where it was typed. `argv` are the words after the verb.

    What comes again with the same `token` makes no second job: the answer is that of the first.
    """

    kind: Literal["job_file", "script"]
    text: Annotated[str, Field(max_length=MAX_BODY)]
    file: Word | None = ""
    argv: Words = []
    environment: Variables = {}
    directory: Annotated[str, Field(max_length=4096, pattern="^/"), AfterValidator(no_nul)] = "/"
    umask: Annotated[int, Field(ge=0, le=0o777)] = 0o022
    user: Name | None = ""
    uid: Number = 0
    gid: Number = 0
    host: Name | None = ""
    command: Words = []
    overrides: Words = []
    env: Variables = {}
    secrets: Variables = {}
    test_only: bool = False
    name: Name | None = None
    hold: bool = False
    cluster: Name | None = None
    token: Name = ""
    files: Annotated[dict[Word, Annotated[str, Field(max_length=MAX_BODY)]], Field(max_length=128)] = {}
    uploads: Literal["", "ask", "done"] = ""


class EvaluationRunBody(RequestBody):
    """A checkpoint to evaluate once more; an empty evaluation means all that watch the job."""

    checkpoint: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(no_nul)]
    evaluation: Name = ""


class FilterBody(BaseModel):
    """Which live jobs; an empty list means any."""

    model_config = ConfigDict(extra="forbid", strict=True)

    states: Names = []
    users: Names = []
    names: Names = []
    partitions: Names = []
    clusters: Names = []
    accounts: Names = []
    qos: Names = []
    nodes: Names = []


class CancelBody(RequestBody):
    """Jobs to end, or to signal. No refs: every live job that the filters name, and then one has to be given."""

    refs: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=100_000)] = []
    task: Name = ""
    filters: FilterBody = FilterBody()
    signal: Annotated[str, Field(max_length=32)] | None = None
    batch_only: bool = False
    full: bool = False
    flush: bool = True


class EmptyBody(RequestBody):
    """Nothing but the wish itself."""


class FsckBody(RequestBody):
    """What is to be removed besides looking: what this installation left, and all that others did."""

    release: bool = False
    installations: Names = []
    all_installations: bool = False


class RequeueBody(RequestBody):
    """Whether the job is held afterwards."""

    hold: bool = False


class ResubmitBody(RequestBody):
    """Whether of an array only the elements that failed are submitted again, and what is changed.

    `changes` are values of options by OPTION or TASK.OPTION; `token` as in a submission.
    """

    failed: bool = False
    changes: Annotated[dict[Word, Word], Field(max_length=10_000)] = {}
    token: Name = ""


class RestartBody(RequestBody):
    """The task to start again; none means all."""

    task: Name | None = None


class ScaleBody(RequestBody):
    """The elastic task and how many members it is to have; null: as its file says, and more where there is room."""

    task: Name = ""
    size: Annotated[int, Field(ge=0, le=10_000)] | None = None


class UpdateBody(RequestBody):
    """New values, only those that are given. Times are seconds; a time limit of null or 0 is none."""

    time_limit: Annotated[int, Field(ge=0, le=LONGEST)] | None = None
    priority: Number = 0
    name: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(no_nul)] = ""
    comment: Word = ""
    partition: Name = ""
    account: Name = ""
    qos: Name = ""
    requeue: bool = True
    nodes: Count = 1
    cpus: Count = 1
    """CPUs of the whole job."""
    tasks: Count = 1
    cpus_per_task: Count = 1
    memory: Number = 0
    """MiB of a node; 0 for all of it."""
    memory_per_cpu: Number = 0
    gres: Word = ""
    stdout: Word = ""
    begin: Annotated[float, Field(ge=0, le=LATEST)] | None = None
    nice: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    dependency: Word = ""
    """As --dependency; empty for none."""
    throttle: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None

    def given(self) -> dict[str, Any]:
        """The values that the client sent. Raises InvalidRequest for a dependency that is none."""
        values = self.model_dump(include=self.model_fields_set - {"format"})
        if "dependency" in values:
            try:
                values["dependency"] = parse_dependency(values["dependency"])
            except ValueError as error:
                raise InvalidRequest("Job dependency problem", remedy=str(error)) from None
        if "time_limit" in values:
            values["time_limit"] = values["time_limit"] or None
        return values


class ClusterBody(RequestBody):
    """A cluster; all where it is empty."""

    cluster: Name = ""
