"""Variables whose values are kept from view: secrets, and those that are secrets by their names or values. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from overspan.bridge.model.job import Job
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import JobSpec

HIDDEN = "***"
"""What stands for a value that is kept from view."""
_SECRET = re.compile(
    r"(?:^|_)(?:pass|pwd|pw|keys?|auth|cookie|pat|jwt|sas)$"
    r"|(?:token|secret|password|passwd|passphrase|credential|(?:api|access|private)key)s?$"
    r"|(?:^|_)(?:secret|password|passwd|passphrase|credential)s?_",
    re.IGNORECASE,
)
"""Names of secrets: `HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`, `PGPASSWORD`; not `TOKENIZERS_PARALLELISM`."""
_PATHS = frozenset(("PWD", "OLDPWD"))
"""The shell's directories, which end in a word of secrets."""
_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@")
"""An address with a password: `postgres://ana:geheim@db/fit`."""


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name is likely to be a secret."""
    return name not in _PATHS and _SECRET.search(name) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is to be kept from view, by its name or because its value has a password in it."""
    return bool(value) and (is_secret_name(name) or _WITH_PASSWORD.search(value) is not None)


def hide_values(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with `***` for what is likely to be secret."""
    return {name: HIDDEN if is_secret(name, value) else value for name, value in variables.items()}


def hide_secrets(job: Job) -> Job:
    """The job as it may be shown: its secrets blank, and what is likely to be secret of its variables too."""
    spec = job.spec.public()
    tasks = tuple(replace(task, env=hide_values(task.env)) for task in spec.tasks)
    return replace(job, spec=replace(spec, environment=hide_values(spec.environment), tasks=tasks))


def hide_exports(text: str, job: Job) -> str:
    """A script without the values of these variables, where it exports them (sh(1)) as rendered scripts do."""
    for name, value in _list_secret(job):
        text = text.replace(f"export {name}={shlex.quote(value)}", f"export {name}='{HIDDEN}'")
    return text


def hide_in_text(text: str, spec: JobSpec) -> str:
    """A text that people see, with `***` for each value of the tasks' secrets."""
    values = {value for task in spec.tasks for value in task.secrets.values() if value}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _list_secret(job: Job) -> Iterator[tuple[str, str]]:
    for task in job.spec.tasks:
        yield from task.secrets.items()
        yield from ((name, value) for name, value in task.env.items() if is_secret(name, value))
