"""What of a batch script's environment travels to its pods: sbatch's --export, without what describes a machine. Pure.

Variables travel as a Secret of the launch, one for each task, which the task's container takes as a whole (`envFrom`):
neither their names nor their values stand in a pod.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.manifests.names import label_launch, name_anchor
from overspan.adapters.kubernetes.manifests.scripts import MAX_TEXT
from overspan.adapters.kubernetes.manifests.volumes import find_shared
from overspan.adapters.kubernetes.settings import FULL, Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.options.srun import parse_words
from overspan.bridge.model.spec import Form, JobSpec, TaskSpec

Document = dict[str, Any]

MACHINE = (
    *("PATH", "MANPATH", "INFOPATH", "LD_*", "DYLD_*", "HOME", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "TEMPDIR"),
    *("HOST", "HOSTTYPE", "MACHTYPE", "OSTYPE", "SHELL", "SHLVL", "_", "BASH_ENV", "ENV", "MAIL"),
    *("MODULEPATH", "MODULESHOME", "MODULES_*", "LMOD_*", "LOADEDMODULES", "_LMFILES_"),
)
"""Variables, and beginnings of their names, that describe the submitting machine. HOME travels where the home is on a
shared volume."""
SESSION = (
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_*", "DBUS_*", "SSH_*", "GPG_*", "KRB5CCNAME", "SUDO_*"),
    *("SESSION_MANAGER", "DESKTOP_SESSION", "WINDOWID", "TERM", "TERM_*", "TERMCAP", "COLORTERM", "COLUMNS", "LINES"),
    *("TMUX", "TMUX_*", "STY", "WINDOW", "LS_COLORS", "LESSOPEN", "LESSCLOSE", "VSCODE_*", "VTE_VERSION"),
    *(
        "SHELLOPTS",
        "BASHOPTS",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "NOTIFY_SOCKET",
        "SYSTEMD_*",
        "LISTEN_*",
        "MANAGERPID",
    ),
)
"""Those of the submitter's session."""
CLUSTER = (
    *("HOSTNAME", "KUBERNETES_*", "OVERSPAN_*", "SKYPILOT_*", "SPAN_*"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_*", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
)
"""Those that the cluster, its device plug-ins and Overspan give to a pod; they travel only by their names."""

_ALLOCATION = ("SLURM_CLUSTER", "SLURM_CONF", "SLURM_JOB", "SLURM_NODELIST", "SLURM_STEP", "SLURM_SUBMIT", "SALLOC_")
"""Beginnings of the names that describe the submitter's own allocation; a pod has its own."""

MAX_EXPORTED = 512 << 10
"""Bytes of the variables of a task: Kubernetes takes 1 MiB in a Secret."""
_LARGEST = 3
"""How many names the message for a too large environment lists."""
_EXPORTED = "SLURM_EXPORT_ENV"
"""What sbatch's --export said, where it said anything (bridge.readers.export)."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Names(NamedTuple):
    """Names, and beginnings of names."""

    whole: frozenset[str]
    beginnings: tuple[str, ...]

    def have(self, name: str) -> bool:
        """Whether a name is among them."""
        return name in self.whole or name.startswith(self.beginnings)


def _sort(*patterns: str) -> _Names:
    whole = frozenset(each for each in patterns if not each.endswith("*"))
    return _Names(whole, tuple(each[:-1] for each in patterns if each.endswith("*")))


_HERE, _CLUSTER = _sort(*MACHINE, *SESSION), _sort(*CLUSTER)


class Exported(NamedTuple):
    """The variables that travel; the names of those that were to and cannot, each with why."""

    values: Mapping[str, str] = {}
    left: tuple[str, ...] = ()


def choose_exported(task: TaskSpec, spec: JobSpec, settings: Settings) -> Exported:
    """The part of a script's environment that travels. InvalidRequest for a named variable that cannot, and for too
    many of them.

    Of a job file nothing travels this way: its tasks name their variables.
    """
    if task.form is not Form.BATCH:
        return Exported()
    named = _list_named(task, spec.origin.command)
    values: dict[str, str] = {}
    left: list[str] = []
    for name, value in task.env.items():
        if name not in named and _stays(name, value, settings):
            continue
        obstacle = _find_obstacle(name, value)
        if not obstacle:
            values[name] = value
        elif name in named:
            raise InvalidRequest(f"{task.name}: the variable {name} {obstacle}", remedy="put it into a file")
        elif _VARIABLE.fullmatch(name):
            # Other names are functions of bash, which belong to the shell that has them.
            left.append(f"{name} ({obstacle})")
    _check_size(task, values)
    return Exported(values, tuple(left))


def choose_step_variables(environment: Mapping[str, str], words: Sequence[str], settings: Settings) -> dict[str, str]:
    """The user's variables for the srun of a step in a pod, in addition to the container's own.

    The same ones as for a script, without what describes the submitter's allocation. `words` are srun's: those that
    its --export names travel in any case. Functions of bash stay.
    """
    named = {word.partition("=")[0].strip() for word in parse_words("srun", words)[0].last("export").split(",")}
    return {
        name: value
        for name, value in environment.items()
        if _VARIABLE.fullmatch(name)
        and not name.startswith(_ALLOCATION)
        and (name in named or not _stays(name, value, settings))
    }


def _list_named(task: TaskSpec, command: Sequence[str]) -> set[str]:
    """The names that --export and --env gave."""
    words = task.env.get(_EXPORTED, "").split(",")
    for place, word in enumerate(command):
        if word.startswith("--env="):
            words.append(word.removeprefix("--env="))
        elif word == "--env" and place + 1 < len(command):
            words.append(command[place + 1])
    return {word.partition("=")[0].strip() for word in words}


def _stays(name: str, value: str, settings: Settings) -> bool:
    """Whether a variable is nothing to a pod."""
    if _CLUSTER.have(name):
        return True
    if settings.environment == FULL or (name == "HOME" and find_shared(value, settings) is not None):
        return False
    return _HERE.have(name)


def _find_obstacle(name: str, value: str) -> str:
    if not _VARIABLE.fullmatch(name):
        return "has a name that a pod cannot have: letters, digits and '_' are possible"
    if "\0" in value or len(value.encode("utf-8", "surrogateescape")) > MAX_TEXT:
        return f"is longer than {MAX_TEXT // 1024} KiB, or has a zero byte"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "is not UTF-8, and Kubernetes takes nothing else"
    return ""


def _check_size(task: TaskSpec, values: Mapping[str, str]) -> None:
    sizes = {name: len(name) + len(value.encode()) for name, value in values.items()}
    total = sum(sizes.values())
    if total <= MAX_EXPORTED:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST]
    words = ", ".join(f"{name} ({sizes[name] / 1024:.0f} KiB)" for name in largest)
    raise InvalidRequest(
        f"{task.name}: its environment has {total / 1024:.0f} KiB, and {MAX_EXPORTED >> 10} KiB travel to a pod; the "
        f"largest variables are {words}",
        remedy="unset what the script does not need, or name what it needs by --export",
    )


def name_exported(token: str, job: Job, task: str) -> str:
    """The name of the Secret that has a task's variables."""
    return f"{name_anchor(token)}-export-{[each.name for each in job.spec.tasks].index(task)}"


def render_exported(token: str, job: Job, settings: Settings) -> tuple[Document, ...]:
    """The Secrets of a launch's tasks; `job` is as it was submitted. Raises InvalidRequest."""
    found = {task.name: choose_exported(task, job.spec, settings).values for task in job.spec.tasks}
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "immutable": True,
            "metadata": {"name": name_exported(token, job, task), "labels": label_launch(token)},
            "data": {name: base64.b64encode(value.encode()).decode("ascii") for name, value in values.items()},
        }
        for task, values in found.items()
        if values
    )
