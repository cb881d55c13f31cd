"""`span completion`: completion for bash, zsh and fish. The shell asks `span completion candidates WORD...`."""

from __future__ import annotations

import contextlib
import io

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.output import write
from overspan.bridge.model.errors import OverspanError

_BASH = """\
_span() {
    local IFS=$'\\n'
    COMPREPLY=($(span completion candidates "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _span span
"""
_ZSH = """\
#compdef span
_span() {
    local -a found
    found=("${(@f)$(span completion candidates "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -- $found || _files
}
compdef _span span
"""
_FISH = """\
function __span_candidates
    set -l words (commandline -opc) (commandline -ct)
    span completion candidates $words[2..-1] 2>/dev/null
end
complete -c span -f -a '(__span_candidates)'
complete -c span -n '__fish_seen_subcommand_from submit sbatch plan' -F
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_TAKES_JOBS = frozenset(
    "show logs wait timeline hold release requeue restart resubmit scancel squeue sacct scontrol".split()  # noqa: SIM905
)


def run(call: Call) -> int:
    """Print a completion script, or the candidates for the last word."""
    if call.words[:1] == ("candidates",):
        write("".join(f"{word}\n" for word in candidates(call, call.words[1:])))
        return 0
    examples = '  eval "$(span completion bash)"        in ~/.bashrc\n'
    parser = make_parser(call, "Print a completion script for a shell.", examples)
    parser.add_argument("shell", choices=tuple(_SCRIPTS))
    write(_SCRIPTS[parser.parse_args(call.words).shell])
    return 0


def candidates(call: Call, words: tuple[str, ...]) -> list[str]:
    """What the last word may become: a command, an option of it, or the id or name of a job."""
    from overspan.bridge.cli.program import COMMANDS

    last = words[-1] if words else ""
    if len(words) <= 1:
        found = [name for name, command in COMMANDS.items() if command.summary]
    elif last.startswith("-"):
        found = _options(call._replace(verb=words[0], words=("--help",)))
    elif words[0] in _TAKES_JOBS:
        found = _jobs(call)
    elif words[0] == "completion":
        found = list(_SCRIPTS)
    else:
        found = []
    return [word for word in found if word.startswith(last)]


def _options(call: Call) -> list[str]:
    """The long options that the command's own help names."""
    import re

    from overspan.bridge.cli.program import run_command

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        run_command(call)
    return sorted(set(re.findall(r"--[A-Za-z][A-Za-z0-9-]*", text.getvalue())))


def _jobs(call: Call) -> list[str]:
    """Ids and names of live jobs; no daemon is started for them."""
    from overspan.bridge.client import Client

    try:
        with Client(environment=call.environment, autostart=False, timeout=2.0) as client:
            rows = client.queue().rows
    except OverspanError:
        return []
    return [str(row.id) for row in rows] + sorted({row.name for row in rows})
