"""The shell text of a job file's task inside a batch script: variables, secrets, set-up and run on every node.

The user's texts are quoted once, as variables of a fixed program, so that nothing in them ends or changes the script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from overspan.adapters.slurm.rendering.images import PYXIS, Container, apptainer_words, pyxis_options, quote_words
from overspan.adapters.slurm.unshared.inline_files import (
    SECRETS,
    InlineFiles,
    quote_path,
    render_links,
    render_run,
    render_unpacking,
)
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.core.environment import rank_job

MAX_TEXT = 120 * 1024
"""Bytes of one variable: Linux's MAX_ARG_STRLEN of 128 KiB, with room for quotes."""

# The user's texts come as variables, because the accounting keeps srun's words. A text with a #! line is run as a file.
_NODE = """\
setup=$overspan_setup run=$overspan_run marker=$overspan_marker
unset overspan_setup overspan_run overspan_marker
export OVERSPAN_NODE_INDEX=${SLURM_NODEID:-0} SKYPILOT_NODE_RANK=${SLURM_NODEID:-0}
export SKYPILOT_NUM_GPUS_PER_NODE=${SLURM_GPUS_ON_NODE:-0}
if [ -n "$setup" ]; then
  /bin/bash -c "$setup" setup || { code=$?; [ -z "$marker" ] || : >"$marker"; exit "$code"; }
fi
case $run in
"#!"*)
  file=$(mktemp) && printf %s "$run" >"$file" && chmod 700 "$file" || exit 1
  "$file" "$@"; code=$?
  rm -f "$file"; exit "$code" ;;
esac
exec /bin/bash -c "$run" run "$@"
"""

# The image's own variables are set before, so the task's come on top. An image may lack bash and the host's TMPDIR.
_IN_IMAGE = """\
eval "$overspan_variables" || exit 1
unset overspan_variables
[ -d "${TMPDIR:-/tmp}" ] || unset TMPDIR
overspan_shell=/bin/bash
[ -x "$overspan_shell" ] || overspan_shell=/bin/sh
"""

_MOUNT = """\
mount_path() {
  [ -e "$1" ] || { echo "cannot mount what is not there: $1" >&2; exit 1; }
  mkdir -p -- "$(dirname -- "$2")" || exit 1
  [ -e "$2" ] || ln -s -- "$1" "$2" 2>/dev/null
  [ "$(readlink -f -- "$1")" = "$(readlink -f -- "$2")" ] && return
  echo "cannot mount $1, there is something else: $2" >&2; exit 1
}
"""

_AWAIT = f'[ -n "${SECRETS}" ] || {{ echo "span: error: the secrets of the job have not come with it" >&2; exit 1; }}'
_FORGET = f"unset {SECRETS}"

_ADDRESSES = """\
SKYPILOT_NODE_IPS=$(for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  address=$(getent ahostsv4 "$node" | head -n 1 | cut -d " " -f 1); echo "${address:-$node}"
done)
export SKYPILOT_NODE_IPS
"""


class Surroundings(NamedTuple):
    """What the text depends on: the file with the secrets, the run directory, the image.

    Without that file the secrets come as a variable. For a whole array, `elements` are the job ids by index. `inline`
    are files that come with the text.
    """

    secrets_path: str = ""
    run_dir: str = ""
    container: Container | None = None
    elements: Mapping[int, int] | None = None
    inline: InlineFiles | None = None


def render_body(job: Job, task: TaskSpec, place: Surroundings) -> str:
    """Everything below the #SBATCH lines. Raises InvalidRequest for a text that is too long or contains NUL."""
    secrets_path, run_dir, container, elements, inline = place
    for text, key in ((task.setup, "setup"), (task.run, "run")):
        if len(text.encode("utf-8", "surrogateescape")) > MAX_TEXT:
            raise InvalidRequest(
                f"`{key}:` of the task {task.name!r} is longer than {MAX_TEXT // 1024} KiB",
                remedy="put it into a file of the working directory and run that",
            )
        if "\0" in text:
            raise InvalidRequest(f"`{key}:` of the task {task.name!r} has a NUL character in it", remedy="take it out")
    variables = _variables(job, task, run_dir)
    numbers = [] if elements is None else _name_elements(elements, task.name) + _rank_elements(job, elements)
    if numbers:
        for name in ("OVERSPAN_JOB_ID", "SKYPILOT_TASK_ID", "SKYPILOT_JOB_RANK"):
            del variables[name]
    exports = [*(f"export {name}={shlex.quote(value)}" for name, value in variables.items()), *numbers]
    secrets = _Secrets(bool(task.secrets), secrets_path)
    lines = [f"(umask 077; mkdir -p -- {quote_path(folder)}) || exit 1" for folder in task.volumes.values()]
    lines += [] if inline is None else render_unpacking(inline, task.workdir)
    lines += _prepare(task, exports, secrets) if container is None else _carry(exports, secrets)
    if task.num_nodes > 1:
        lines.append(_ADDRESSES.rstrip("\n"))
    program = _NODE if container is None else _IN_IMAGE + _NODE.replace("/bin/bash", '"$overspan_shell"')
    lines += [
        f"node={shlex.quote(program)}",
        f"export overspan_setup={shlex.quote(task.setup.strip())}",
        f"export overspan_run={shlex.quote(task.run)}",
        f"export overspan_marker={shlex.quote(f'{run_dir}/setup-failed' if run_dir else '')}",
    ]
    return "\n".join([*lines, _start(task, container, inline is not None), ""])


def _name_elements(elements: Mapping[int, int], task: str) -> list[str]:
    """The lines that set each element's job id, usually its index plus a constant."""
    offsets = {number - index for index, number in elements.items()}
    if len(offsets) == 1:
        lines = [f"OVERSPAN_JOB_ID=$((SLURM_ARRAY_TASK_ID + {offsets.pop()}))"]
    else:
        choices = [f"{index}) OVERSPAN_JOB_ID={number} ;;" for index, number in elements.items()]
        lines = ["case $SLURM_ARRAY_TASK_ID in", *choices, "esac"]
    return [*lines, f"export OVERSPAN_JOB_ID SKYPILOT_TASK_ID=overspan-$OVERSPAN_JOB_ID-{shlex.quote(task)}"]


def _rank_elements(job: Job, elements: Mapping[int, int]) -> list[str]:
    """The lines that set each element's rank in its array."""
    array = job.spec.array
    ranks = {index: array.rank(index) if array is not None else place for place, index in enumerate(elements)}
    if len({index - rank for index, rank in ranks.items()}) == 1:
        index, rank = next(iter(ranks.items()))
        return [f"export SKYPILOT_JOB_RANK=$((SLURM_ARRAY_TASK_ID - {index - rank}))"]
    choices = [f"{index}) SKYPILOT_JOB_RANK={rank} ;;" for index, rank in ranks.items()]
    return ["case $SLURM_ARRAY_TASK_ID in", *choices, "esac", "export SKYPILOT_JOB_RANK"]


class _Secrets(NamedTuple):
    """Whether there are secrets, and the file with them as sh commands; without a path they are in a variable."""

    wanted: bool
    path: str

    def read(self) -> list[str]:
        """The lines that set the secrets as variables."""
        if not self.wanted:
            return []
        return [f". {shlex.quote(self.path)} || exit 1"] if self.path else [_AWAIT, f'eval "${SECRETS}"', _FORGET]

    def append(self) -> list[str]:
        """The lines that append the secrets to the variables for an image."""
        if not self.wanted:
            return []
        if self.path:
            return [f"overspan_variables=$overspan_variables$(cat {shlex.quote(self.path)}) || exit 1"]
        return [_AWAIT, f"overspan_variables=$overspan_variables${SECRETS}", _FORGET]


def _prepare(task: TaskSpec, exports: list[str], secrets: _Secrets) -> list[str]:
    """Variables and mounts of a task that runs on the nodes themselves."""
    lines = [*exports, *secrets.read()]
    mounts = {**task.file_mounts, **task.volumes}
    if mounts:
        lines += [*render_links(mounts), _MOUNT.rstrip("\n")]
        lines += [f"mount_path {quote_path(source)} {quote_path(target)}" for target, source in mounts.items()]
    return lines


def _carry(exports: list[str], secrets: _Secrets) -> list[str]:
    """Pack a task's variables into one, which is read inside of the image: otherwise the image's own would win."""
    joined = "\n".join([*exports, ""])
    return [f"overspan_variables={shlex.quote(joined)}", *secrets.append(), "export overspan_variables"]


def _start(task: TaskSpec, container: Container | None, clears: bool = False) -> str:
    """The command that starts the program on every node: by exec, or with `clears` so that the script can clean up.

    Pyxis needs an srun even for one node, because its options are srun's.
    """
    words = "" if container is None else f"{quote_words(apptainer_words(container))} "
    shell = "/bin/bash" if container is None else "/bin/sh"
    options = ""
    if container is not None and container.runtime == PYXIS:
        words, options = "", f" {quote_words(pyxis_options(container))}"
    program = f'{words}{shell} -c "$node" node "$@"'
    if task.num_nodes == 1 and not options:
        warning = "" if task.signal is None else task.signal.name
        return render_run(program, warning) if clears else f"exec {program}"
    count = task.num_nodes
    # From 22.05 on, srun no longer takes --cpus-per-task from the job.
    cpus = '--cpus-per-task="$SLURM_CPUS_ON_NODE"'
    shape = f"--nodes={count} --ntasks={count} --ntasks-per-node=1 {cpus}"
    return f"exec srun {shape} --kill-on-bad-exit=1 --export=ALL{options} {program}"


def _variables(job: Job, task: TaskSpec, run_dir: str) -> dict[str, str]:
    own = {
        "OVERSPAN_JOB_ID": str(job.id),
        "OVERSPAN_TASK": task.name,
        "OVERSPAN_NUM_NODES": str(task.num_nodes),
        "OVERSPAN_RUN_DIR": run_dir,
        "SKYPILOT_NUM_NODES": str(task.num_nodes),
        "SKYPILOT_TASK_ID": f"overspan-{job.id}-{task.name}",
        **rank_job(job),
    }
    wrong = [name for name in (*task.env, *task.secrets) if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if wrong:
        raise InvalidRequest(f"{wrong[0]!r} is not the name of a variable", remedy="use letters, digits and '_'")
    return {**task.env, **{name: value for name, value in own.items() if value}}
