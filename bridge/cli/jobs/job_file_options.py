"""What the command line changes about a job file: the options that `span submit` and `span plan` share.

SkyPilot's options are there under its names; each is an override of the keys that it stands for.
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

from overspan.bridge.cli.arguments import read_pairs
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.model.errors import InvalidRequest


class FileChanges(NamedTuple):
    """Overrides in order, and the variables and secrets of every task."""

    overrides: list[str]
    env: dict[str, str]
    secrets: dict[str, str]


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """The options that change a job file as it is read; `read_changes` takes them."""
    add = parser.add_argument
    add("-n", "--name", default="", help="name of the job")
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="change a key of the file")
    add("--env", action="append", default=[], metavar="KEY=VALUE", help="set a variable of every task")
    add("--env-file", action="append", default=[], metavar="FILE", help="set the variables of a file; --env wins")
    add("--secret", action="append", default=[], metavar="KEY[=VALUE]", help="set a secret; without a value from here")
    add("--num-nodes", type=int, metavar="N", help="nodes of every task")
    add("--gpus", metavar="KIND[:N]", help="GPUs of each node of every task, as `accelerators` has them")
    add("--infra", metavar="PLACE", help="where to run: slurm/CLUSTER/PARTITION, kubernetes/CONTEXT")
    add("--num-jobs", type=int, metavar="N", help="an array of N jobs; SKYPILOT_JOB_RANK tells them apart")
    add("-y", "--yes", action="store_true", help="no effect: nothing is asked")


def read_changes(call: Invocation, chosen: argparse.Namespace) -> FileChanges:
    """What the options change. Raises InvalidRequest."""
    env: dict[str, str] = {}
    for file in chosen.env_file:
        from overspan.bridge.cli.jobs.env_files import read_env_file

        env.update(read_env_file(file, call.environment))
    env.update(_variables(chosen.env, "--env", call))
    return FileChanges([*_list_overrides(chosen), *chosen.set], env, _variables(chosen.secret, "--secret", call))


def _list_overrides(chosen: argparse.Namespace) -> list[str]:
    """SkyPilot's options as overrides; --set comes after them and wins."""
    overrides = []
    if chosen.num_nodes is not None:
        overrides.append(f"*.num_nodes={chosen.num_nodes}")
    if chosen.gpus is not None:
        overrides += ["*.resources.*.gpus=", f"*.resources.*.accelerators={json.dumps(chosen.gpus)}"]
    if chosen.infra is not None:
        overrides += [f"*.resources.*.{key}=" for key in ("cloud", "region", "zone")]
        overrides.append(f"*.resources.*.infra={json.dumps(chosen.infra)}")
    if chosen.num_jobs is not None:
        if chosen.num_jobs < 1:
            raise InvalidRequest(f"--num-jobs {chosen.num_jobs}: write a number from 1")
        overrides.append(f"array=0-{chosen.num_jobs - 1}")
    return overrides


def _variables(items: list[str], option: str, call: Invocation) -> dict[str, str]:
    """Read KEY=VALUE. KEY alone takes its value from this environment, which keeps secrets off the command line."""
    full = []
    for item in items:
        if "=" not in item and item not in call.environment:
            raise InvalidRequest(
                f"{option} {item}: the variable is not set here", remedy=f"write {option} {item}=VALUE"
            )
        full.append(item if "=" in item else f"{item}={call.environment[item]}")
    return read_pairs(full, option)


def hide_secrets(words: tuple[str, ...]) -> list[str]:
    """Blank the values of secrets, because the command line is stored and shown."""
    shown = []
    secret = False
    for word in words:
        option, equals, value = word.partition("=")
        if secret:
            word = word.partition("=")[0]
        elif option.startswith("--sec") and equals:
            word = f"{option}={value.partition('=')[0]}"
        secret = word.startswith("--sec") and not equals
        shown.append(word)
    return shown
