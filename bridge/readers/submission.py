"""One submission, of any form, to a JobSpec: the way in for the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import JobSpec, Origin
from overspan.bridge.readers.batch_script import read_batch_script
from overspan.bridge.readers.context import ReadContext
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.job_groups import read_parent
from overspan.bridge.readers.sbatch_arguments import parse_sbatch

JOB_FILE = "job_file"
SCRIPT = "script"


@dataclass(frozen=True)
class SubmissionRequest:
    """What a command sends, and what the daemon adds.

    `kind` is job_file or script. `file` names the text in messages; empty is standard input. `argv` are the words
    after the verb, read for scripts only. `environment`, `directory`, `umask`, `user`, `uid`, `host` and `command`
    are the submitter's. `overrides`, `env` and `secrets` are --set, --env and --secret. `cluster`, `name` and `hold`
    replace what the text says. `clusters` maps configured clusters to kinds; None leaves names unchecked. `now` is in
    seconds since the epoch.
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
    cluster: str = ""
    name: str = ""
    hold: bool = False
    clusters: Mapping[str, str] | None = None
    now: float = 0.0


def read_submission(request: SubmissionRequest) -> JobSpec:
    """Read a submission. Raises InvalidRequest, and for scripts its children with sbatch's exit codes."""
    if request.kind not in (JOB_FILE, SCRIPT):
        raise InvalidRequest(f"{request.kind!r} is not a kind of submission", remedy=f"send {JOB_FILE} or {SCRIPT}")
    if not request.directory.startswith("/"):
        raise InvalidRequest(f"the directory {request.directory!r} is not absolute")
    context = _make_context(request)
    if request.kind == JOB_FILE:
        spec = read_job_file(request.text, request.file or "stdin", context=context)
        # As with sbatch --export=ALL; clusters that do not share the submitter's machine use the named variables only.
        parent = read_parent(None, request.environment)
        return replace(spec, environment=dict(request.environment), parent=parent)
    if request.overrides:
        raise InvalidRequest("--set is for job files", remedy="write options of sbatch for a script")
    call = parse_sbatch(request.argv, request.environment)
    return read_batch_script(request.text, request.file, call=call, context=context)


def _make_context(request: SubmissionRequest) -> ReadContext:
    return ReadContext(
        directory=request.directory,
        environment=request.environment,
        env=request.env,
        secrets=request.secrets,
        overrides=request.overrides,
        origin=Origin(
            user=request.user,
            uid=request.uid,
            host=request.host,
            directory=request.directory,
            command=request.command,
            file=request.file,
            text=request.text,
            umask=request.umask,
        ),
        clusters=request.clusters,
        cluster=request.cluster,
        name=request.name,
        hold=request.hold,
        now=request.now,
    )
