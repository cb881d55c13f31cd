"""A container that a step of its own holds: how a program of another step gets into it.

What the plugin of srun does for the step's tasks, the agent's child does too: it joins the namespaces of a process in
there. So the program stays the agent's, with its resources, signals and exit code. Source: pyxis_slurmstepd.c.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from overspan.bridge.runtime.core import kernel

MARK = "OVERSPAN_HOLD"
"""The variable by which the holder is found on its node."""
HOLD_WORDS = (
    "/bin/sh",
    "-c",
    # Slurm signals all steps of a job: the container lasts as long as its program.
    "trap '' HUP INT QUIT USR1 USR2 ALRM TERM\necho '{\"held\":{}}'\nwhile read -r line; do :; done",
)
"""The program that holds a container until its input ends: all of it is the shell's own."""

# A path of the node's is of no use in there, also where it reads like the image's own.
_ALWAYS = ("PATH",)
_NEVER = ("PWD", "OLDPWD", "SHLVL", "_")
_STEP = ("SLURM", "SRUN_", "PMI", "OVERSPAN_")


def find_holder(mark: str) -> int:
    """The process on this machine that holds the container of this mark; 0 where there is none."""
    wanted = os.fsencode(f"{MARK}={mark}")
    script = os.fsencode(HOLD_WORDS[-1])
    for pid in kernel.list_pids():
        try:
            # What serves the container from outside may have the mark too, and so does srun.
            if wanted not in kernel.read_file(f"/proc/{pid}/environ").split(b"\0"):
                continue
            arguments = kernel.read_file(f"/proc/{pid}/cmdline").split(b"\0")
            if script in arguments and os.stat(f"/proc/{pid}/ns/mnt") != os.stat("/proc/self/ns/mnt"):
                return pid
        except OSError:
            continue
    return 0


def read_variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with. Raises OSError."""
    items = (item.partition(b"=") for item in kernel.read_file(f"/proc/{pid}/environ").split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in items}


def merge_image(
    task: Mapping[str, str], inside: Mapping[str, str], outside: Mapping[str, str], carried: Iterable[str]
) -> dict[str, str]:
    """The environment of a program in the container: the image's variables win over the task's, `carried` over both.

    `inside` is the holder's environment, `outside` that of a step on the same node: where they differ, it is the image.
    """
    result = dict(task)
    for name, value in inside.items():
        if name in _NEVER or name.startswith(_STEP):
            continue
        if name in _ALWAYS or outside.get(name) != value:
            result[name] = value
    result.update((name, task[name]) for name in carried if name in task)
    return result
