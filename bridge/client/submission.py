"""Builds a submission: the text, and where and by whom it was submitted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from overspan.bridge.client.messages import Submission, SubmitOptions
from overspan.bridge.model.errors import InvalidRequest, Place

_NAMES_FILE = re.compile(
    r"""(?:^|[\s{,.\[])"?(?:job|on_checkpoint)"?\s*[:=]\s*(?:"([^"\n]+)"|'([^'\n]+)'|([^\s,{}\[\]#"']+))""",
    re.MULTILINE,
)
"""A key whose value may be the file of an evaluation, in YAML, JSON, --set and `#SPAN` lines."""
_MAX_FILES = 64
_MAX_TEXT = 4 << 20
"""Bytes of a job file or script: Slurm's own limit (max_script_size) is 4 MiB."""


def make_submission(job: str | os.PathLike[str] | Mapping[str, Any], options: SubmitOptions) -> Submission:
    """Prepare a job for `Client.send`: a path, the text (anything with a newline) or a mapping.

    A text that begins with `#!` is a batch script. Raises InvalidRequest when the file cannot be read.
    """
    file = ""
    if isinstance(job, Mapping):
        import json

        # JSON is YAML.
        text = json.dumps(job)
    elif isinstance(job, str) and "\n" in job:
        text = job
    else:
        file = os.fspath(job)
        text = read_text(file)
    script = text.startswith("#!")
    args = tuple(options.get("args", ()))
    return Submission(
        kind="script" if script else "job_file",
        text=text,
        file=file,
        argv=(*args, *([file] if file else [])) if script else (),
        cluster=options.get("cluster", ""),
        name=options.get("name", ""),
        hold=options.get("hold", False),
        overrides=tuple(options.get("overrides", ())),
        env=options.get("env", {}),
        secrets=options.get("secrets", {}),
    )


def read_text(file: str) -> str:
    """Read a job file or script; raises InvalidRequest with Slurm's words for what cannot be opened."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(_MAX_TEXT + 1)
    except OSError as error:
        raise InvalidRequest(f"Unable to open file {file}", remedy=f"{error.strerror}: {file}") from None
    return decode_text(data, file)


def decode_text(data: bytes, file: str) -> str:
    """Decode what was read; raises InvalidRequest for what is too long or not UTF-8."""
    if len(data) > _MAX_TEXT:
        raise InvalidRequest(f"{file} is longer than {_MAX_TEXT >> 20} MiB", remedy="let it call another file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidRequest(
            "the file is not UTF-8 text",
            remedy=f"byte {error.start} is {data[error.start]:#04x}",
            place=Place(file, line),
        ) from None


def submission_document(submission: Submission, environment: Mapping[str, str]) -> dict[str, Any]:
    """The request body. Variables that are no UTF-8 text are left out, since JSON cannot carry them."""
    try:
        directory = os.getcwd()
    except OSError:
        raise InvalidRequest("the current directory does not exist any more", remedy="cd to one that does") from None
    files = submission.files or find_files(submission, directory)
    return {
        "kind": submission.kind,
        "text": submission.text,
        "file": submission.file,
        "argv": list(submission.argv),
        "environment": submission_variables(environment),
        "directory": directory,
        "umask": read_umask(),
        "user": user_name(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "host": os.uname().nodename,
        "command": list(submission.command),
        "overrides": list(submission.overrides),
        "env": dict(submission.env),
        "secrets": dict(submission.secrets),
        "test_only": submission.test_only,
        "name": submission.name or None,
        "hold": submission.hold,
        "cluster": submission.cluster or None,
        # A daemon of an earlier version refuses a key that it does not know.
        **({"files": dict(files)} if files else {}),
        **({"uploads": "ask"} if _may_upload(submission) else {}),
    }


def _may_upload(submission: Submission) -> bool:
    """Whether it may name files that go to a bucket first: then the command shows how far that is."""
    return any("file_mounts" in word for word in (submission.text, *submission.overrides))


def find_files(submission: Submission, directory: str) -> dict[str, str]:
    """The texts of the files that a submission names for its evaluations, by absolute path.

    The command reads them: they are the submitter's, and the daemon may be another user's. One that is not there is
    left out, and the daemon says where it was wanted.
    """
    words = [submission.text, *submission.overrides]
    if not any("on_checkpoint" in word for word in words):
        return {}
    named = [next(filter(None, match.groups())) for word in words for match in _NAMES_FILE.finditer(word)]
    found: dict[str, str] = {}
    for name in named[:_MAX_FILES]:
        path = os.path.join(directory, os.path.expanduser(name))
        try:
            if path not in found and os.path.isfile(path):
                found[path] = read_text(path)
        except InvalidRequest:
            continue
    for text in list(found.values()):
        # A watch's own file may name its job's.
        for match in _NAMES_FILE.finditer(text):
            path = os.path.join(directory, os.path.expanduser(next(filter(None, match.groups()))))
            if path not in found and os.path.isfile(path):
                found[path] = read_text(path)
    return found


def submission_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that JSON can carry."""
    return {name: value for name, value in environment.items() if _is_text(name) and _is_text(value)}


def list_left_out(environment: Mapping[str, str]) -> list[str]:
    """The names of variables that `submission_document` leaves out, as a message can have them."""
    names = [name for name, value in environment.items() if not (_is_text(name) and _is_text(value))]
    return [name.encode("utf-8", "backslashreplace").decode() for name in names]


def read_umask() -> int:
    """The process's umask, without setting it as umask(2) would, for the sake of other threads."""
    with open("/proc/self/status") as stream:
        for line in stream:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def user_name() -> str:
    """The name of the user that runs this process; the number where it has none."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _is_text(value: str) -> bool:
    # Undecodable bytes of the environment arrive as lone surrogates.
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
