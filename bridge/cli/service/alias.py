"""`span alias`: Slurm's commands under their own names, as shell functions or as executables in a folder."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write
from overspan.bridge.config.command_wrappers import MARK, VERBS, ensure_wrappers, write_wrappers
from overspan.bridge.config.paths import find_paths
from overspan.bridge.model.errors import InvalidRequest

_ABOUT = """\
Call Overspan's commands by Slurm's names. Without --folder shell functions are printed; with it, executables are
written, which programs find too. Inside jobs they are on PATH. Slurm's own commands are never replaced."""
_EXAMPLES = """\
  eval "$(span alias)"                               in ~/.bashrc
  eval "$(span alias --pool gpu)"                    what calls sbatch from here on submits to a pool
  span alias --shell fish | source                   in config.fish
  export PATH="$(span alias --folder):$PATH"         for programs that call sbatch
"""
_FORMS = {
    "bash": '{verb}() {{ span {verb} "$@"; }}\n',
    "zsh": '{verb}() {{ span {verb} "$@"; }}\n',
    "fish": "function {verb}; span {verb} $argv; end\n",
}


def run(call: Invocation) -> int:
    """Print the functions, or write the executables and print their folder."""
    parser = make_parser(call, _ABOUT, _EXAMPLES)
    parser.add_argument("--shell", choices=tuple(_FORMS), help="shell of the functions; default: yours, else bash")
    parser.add_argument(
        "--folder", nargs="?", const="", metavar="DIR", help="write executables; default: the folder that jobs use"
    )
    parser.add_argument("--pool", default="", metavar="POOL", help="have sbatch submit to this pool (SBATCH_POOL)")
    chosen = parser.parse_args(call.words)
    if chosen.pool and chosen.folder is not None:
        raise InvalidRequest(
            "executables are the same for all pools", remedy=f"set SBATCH_POOL={chosen.pool} where they are called"
        )
    if chosen.folder is None:
        write(_set_pool(call, chosen) + _list_functions(call, chosen.shell))
    elif chosen.folder:
        folder = os.path.abspath(chosen.folder)
        write_wrappers(folder)
        write(f"{folder}\n")
    else:
        write(ensure_wrappers(find_paths(call.environment).state) + "\n")
    return 0


def _set_pool(call: Invocation, chosen: argparse.Namespace) -> str:
    """The line that has sbatch submit to a pool; empty without one."""
    if not chosen.pool:
        return ""
    assign = "set -gx SBATCH_POOL " if _name_shell(call, chosen.shell) == "fish" else "export SBATCH_POOL="
    return f"{assign}{shlex.quote(chosen.pool)}\n"


def _name_shell(call: Invocation, shell: str | None) -> str:
    return shell or os.path.basename(call.environment.get("SHELL", ""))


def _list_functions(call: Invocation, shell: str | None) -> str:
    """A shell function for each command that this machine does not have from Slurm."""
    form = _FORMS.get(_name_shell(call, shell), _FORMS["bash"])
    own = [verb for verb in VERBS if _is_slurms(verb, call.environment.get("PATH", ""))]
    if own:
        say(call, f"left out, since Slurm's own are on PATH: {' '.join(own)}")
    return "".join(form.format(verb=verb) for verb in VERBS if verb not in own)


def _is_slurms(verb: str, path: str) -> bool:
    found = shutil.which(verb, path=path)
    if found is None:
        return False
    try:
        with open(found, "rb") as stream:
            return MARK not in stream.read(4096)
    except OSError:
        return True
