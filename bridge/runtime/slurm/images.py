"""A node run in an image: its words behind those of the image's runtime, with what only the node knows.

The agent stays outside, so that an image needs nothing but /bin/sh. Apptainer is a program that the agent starts; Pyxis
is a part of srun, and the agent's child enters the container that a step of its own holds. Source: apptainer-exec(1).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.core import isolation
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER

HOME = "\x01"
"""Stands in words for the home on the node."""
HOSTS = "\x02"
"""Stands in words for the hosts file on the node."""
FOLDER = FOLDER_PLACEHOLDER
"""Stands in words for the folder of the node run, where that is the run directory: the nodes share none."""
HOSTS_FILE = "image-hosts"
"""The name of the hosts file that is shown in an image, in the folder of its node run."""

_OWN = ("OVERSPAN_", "SKYPILOT_")
# Apptainer takes no home from a variable (its option --home does that).
_NEVER = ("HOME",)
# The shell that was found on the node may not be in the image.
_CHOOSE = (
    "for shell in /bin/bash /usr/bin/bash /bin/sh; do [ ! -x $shell ] || break; done\n"
    'for word do shift; case $word in /bin/bash|/usr/bin/bash) word=$shell;; esac; set -- "$@" "$word"; done\n'
    '[ -d "${TMPDIR:-/tmp}" ] || unset TMPDIR\n'
    'exec "$@"'
)


def is_held(image: Sequence[str]) -> bool:
    """Whether a step of its own holds the container: the words are options of its srun then, not a program's."""
    return bool(image) and image[0].startswith("--")


def list_carried(spec: TaskSpec, environment: Iterable[str]) -> tuple[str, ...]:
    """Names of the variables that win over the image's own: the task's, and those that tell it where it is."""
    named = {*spec.env, *spec.secrets, *(name for name in environment if name.startswith(_OWN))}
    return tuple(sorted(named.difference(_NEVER)))


def wrap_words(image: Sequence[str], argv: Sequence[str], home: str, hosts: str, folder: str = "") -> tuple[str, ...]:
    """The words that run `argv` in the image; `home`, `hosts` and `folder` are the node's paths."""
    return (*fill_words(image, home, hosts, folder), "/bin/sh", "-c", _CHOOSE, "sh", *argv)


def fill_words(image: Sequence[str], home: str, hosts: str, folder: str) -> tuple[str, ...]:
    """The words of the image's runtime with the node's paths in them."""
    return tuple(word.replace(HOME, home).replace(HOSTS, hosts).replace(FOLDER, folder) for word in image)


def carry_variables(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The environment for Apptainer: what is in APPTAINERENV_NAME is NAME in there, in place of the image's own."""
    carried = {f"APPTAINERENV_{name}": environment[name] for name in names if name in environment}
    return {**environment, **carried}


def find_home(environment: Mapping[str, str]) -> str:
    """The home of the user that runs this, by its variable where there is one."""
    return environment.get("HOME", "") or os.path.expanduser("~")


def write_image_hosts(folder: str, members: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Write the hosts file that is shown in the image into `folder`; gives its path. Raises OSError."""
    path = os.path.join(folder, HOSTS_FILE)
    isolation.write_hosts(path, isolation.render_machine_hosts(members))
    return path
