"""`span completion`: completion for bash, zsh and fish. The shell asks `span completion candidates WORD...`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write
from overspan.bridge.config.command_wrappers import VERBS
from overspan.bridge.model.errors import OverspanError

if TYPE_CHECKING:
    from overspan.bridge.client import Client

T = TypeVar("T")

# Slurm's names are completed where they are functions, which `span alias` has made: Slurm's own commands stay alone.
_BASH = """\
_span() {
    local IFS=$'\\n' words=("${COMP_WORDS[@]:0:COMP_CWORD+1}")
    [ "${words[0]##*/}" != span ] || words=("${words[@]:1}")
    COMPREPLY=($(span completion candidates "${words[@]}" 2>/dev/null))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _span span
for _span_verb in VERBS; do
    [ "$(type -t "$_span_verb")" != function ] || complete -F _span "$_span_verb"
done
unset _span_verb
"""
_ZSH = """\
#compdef span
_span() {
    local -a found asked
    asked=("${(@)words[1,CURRENT]}")
    [[ "${asked[1]:t}" == span ]] && shift asked
    found=("${(@f)$(span completion candidates "${(@)asked}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -- $found || _files
}
compdef _span span
for _span_verb in VERBS; do
    (( $+functions[$_span_verb] )) && compdef _span $_span_verb
done
unset _span_verb
"""
_FISH = """\
function __span_candidates
    set -l words (commandline -opc) (commandline -ct)
    test (basename $words[1]) = span; and set -e words[1]
    span completion candidates $words 2>/dev/null
end
complete -c span -f -a '(__span_candidates)'
complete -c span -n '__fish_seen_subcommand_from submit sbatch plan' -F
for verb in VERBS
    functions -q $verb; and complete -c $verb -a '(__span_candidates)'
end
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def run(call: Invocation) -> int:
    """Print a completion script, or the candidates for the last word."""
    if call.words[:1] == ("candidates",):
        write("".join(f"{word}\n" for word in candidates(call, call.words[1:])))
        return 0
    examples = '  eval "$(span completion bash)"        in ~/.bashrc, after `span alias`\n'
    parser = make_parser(call, "Print a completion script for a shell.", examples)
    parser.add_argument("shell", choices=tuple(_SCRIPTS))
    write(_SCRIPTS[parser.parse_args(call.words).shell].replace("VERBS", " ".join(VERBS)))
    return 0


def candidates(call: Invocation, words: tuple[str, ...]) -> list[str]:
    """What the last word may become: a command, an option of it, or what stands at its place."""
    from overspan.bridge.cli.program import COMMANDS
    from overspan.bridge.cli.service.completion_grammar import complete

    last = words[-1] if words else ""
    if len(words) <= 1 or (words[0] == "help" and len(words) == 2):
        found = [name for name, command in COMMANDS.items() if command.summary]
    elif last.startswith("-") and "=" not in last:
        found = _options(call._replace(verb=words[0], words=("--help",)))
    else:
        return complete(words, DaemonCandidates(call))
    return [word for word in found if word.startswith(last)]


def _options(call: Invocation) -> list[str]:
    """The long options that the command's own help names."""
    import re

    from overspan.bridge.cli.program import run_command

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        run_command(call)
    return sorted(set(re.findall(r"--[A-Za-z][A-Za-z0-9-]*", text.getvalue())))


class DaemonCandidates:
    """Names from a running daemon; completion never starts one."""

    def __init__(self, call: Invocation) -> None:
        self._call = call

    def jobs(self) -> list[str]:
        """Ids and names of live jobs."""
        rows = self._ask(lambda client: list(client.queue().rows))
        return [str(row.id) for row in rows] + sorted({row.name for row in rows})

    def tasks(self, ref: str) -> list[str]:
        """The tasks of a job."""
        return self._ask(lambda client: [task["name"] for task in client.show(ref).get("tasks", ())])

    def clusters(self) -> list[str]:
        """The configured clusters."""
        return self._ask(lambda client: [cluster["name"] for cluster in client.clusters()])

    def schedules(self) -> list[str]:
        """The ids of schedules."""
        return self._ask(lambda client: [f"c{found['id']}" for found in client.schedules()])

    def _ask(self, question: Callable[[Client], list[T]]) -> list[T]:
        from overspan.bridge.client import Client

        try:
            with Client(environment=self._call.environment, autostart=False, timeout=2.0) as client:
                return question(client)
        except OverspanError:
            return []
