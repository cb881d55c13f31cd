"""Reads a submission of any form into a JobSpec. The controller calls only this."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.evaluations import EvaluationSpec
from overspan.bridge.model.spec import JobSpec, Origin
from overspan.bridge.readers.evaluations import EvaluationContext, read_watch
from overspan.bridge.readers.job_file import read_job_file, read_job_tables
from overspan.bridge.readers.parent_group import read_parent
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.sbatch.arguments import parse_sbatch
from overspan.bridge.readers.sbatch.batch_script import read_batch_script
from overspan.bridge.validation.yaml_nodes import Table

JOB_FILE = "job_file"
SCRIPT = "script"


@dataclass(frozen=True)
class Submission:
    """A submission as a command sends it: a text, the words of the command line, and where it was typed.

    `kind` is job_file or script. `file` names the text in messages; empty is standard input. `argv` are the words
    after the verb, read for scripts only. `environment`, `directory`, `umask`, `user`, `uid`, `host` and `command`
    are the submitter's. `overrides`, `env` and `secrets` are --set, --env and --secret. `cluster`, `name` and `hold`
    replace what the text says; `test_only` submits nothing. `token` is drawn for each submission, so that one that is
    sent again is known; empty for none. `files` are the texts of files that the text names (`on_checkpoint.job`), by
    their absolute paths: only the submitter's own commands read the submitter's files. `uploads` says who sends what
    goes to a bucket first: `ask`, the command will; `done`, it has; else the daemon does before it answers.
    """

    kind: str
    text: str
    file: str = ""
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    umask: int = 0o022
    user: str = ""
    uid: int = 0
    host: str = ""
    command: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    test_only: bool = False
    name: str = ""
    hold: bool = False
    cluster: str = ""
    token: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    uploads: str = ""
    job: int = 0
    """The job whose token sent it; 0 for a user's own command."""
    home: str = ""
    """The cluster of that job, which is the default in place of the daemon's."""


def read_submission(submission: Submission, clusters: Mapping[str, str] | None = None, now: float = 0.0) -> JobSpec:
    """Read a submission at a time (epoch seconds). `clusters` maps names to kinds; None leaves names unchecked.

    Raises InvalidRequest, and for scripts its children with sbatch's exit codes.
    """
    kind, text, file = submission.kind, submission.text, submission.file
    if kind not in (JOB_FILE, SCRIPT):
        raise InvalidRequest(f"{kind!r} is not a kind of submission", remedy=f"send {JOB_FILE} or {SCRIPT}")
    if not submission.directory.startswith("/"):
        raise InvalidRequest(f"the directory {submission.directory!r} is not absolute")
    context = _make_context(submission, clusters, now)
    if kind == JOB_FILE:
        return _complete(read_job_file(text, file or "stdin", context=context), submission)
    if submission.overrides:
        raise InvalidRequest("--set is for job files", remedy="write options of sbatch for a script")
    call = parse_sbatch(submission.argv, submission.environment)
    return read_batch_script(text, file, call=call, context=context)


def read_documents(submission: Submission, documents: list[Table], clusters: Mapping[str, str], now: float) -> JobSpec:
    """Read a job file's documents that were changed since they were read of the submission; raises InvalidRequest."""
    context = _make_context(submission, clusters, now)
    return _complete(read_job_tables(documents, submission.file or "stdin", context), submission)


def _complete(spec: JobSpec, submission: Submission) -> JobSpec:
    # As with sbatch --export=ALL; clusters that do not share the submitter's machine use the named variables only.
    environment = submission.environment
    return replace(spec, environment=dict(environment), parent=read_parent(None, environment))


def read_watch_submission(
    submission: Submission, clusters: Mapping[str, str], now: float, tasks: tuple[Sequence[str], Collection[str]]
) -> EvaluationSpec:
    """Read what `span evals watch` sends: a document with one entry of `on_checkpoint`.

    `tasks` are those of the watched job, and its primaries. Raises InvalidRequest.
    """
    context = _make_context(submission, clusters, now)
    return read_watch(submission.text, submission.file or "stdin", EvaluationContext(context, *tasks, read_job_tables))


def _make_context(submission: Submission, clusters: Mapping[str, str] | None, now: float) -> ReadContext:
    return ReadContext(
        directory=submission.directory,
        environment=submission.environment,
        env=submission.env,
        secrets=submission.secrets,
        overrides=submission.overrides,
        origin=Origin(
            user=submission.user,
            uid=submission.uid,
            host=submission.host,
            directory=submission.directory,
            command=submission.command,
            file=submission.file,
            text=submission.text,
            umask=submission.umask,
            job=submission.job,
        ),
        clusters=clusters,
        cluster=submission.cluster,
        name=submission.name,
        hold=submission.hold,
        now=now,
        files=submission.files,
    )
