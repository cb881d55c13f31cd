"""Completion: what a word of a command line names, by the option before it or else by its position.

Pure; a CandidateSource supplies the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from overspan.bridge.model.states import State


class WordKind(Enum):
    """What a word names."""

    JOB = "job"
    TASK = "task"
    STATE = "state"
    CLUSTER = "cluster"
    SCHEDULE = "schedule"


class CandidateSource(Protocol):
    """Names that the daemon and the configuration know."""

    def jobs(self) -> list[str]:
        """Ids and names of live jobs."""

    def tasks(self, ref: str) -> list[str]:
        """The tasks of a job."""

    def clusters(self) -> list[str]:
        """The configured clusters."""

    def schedules(self) -> list[str]:
        """The ids of schedules."""


class Grammar(NamedTuple):
    """What a command's options and its positional words name. The last position repeats."""

    options: Mapping[str, WordKind] = {}
    places: tuple[WordKind | tuple[str, ...], ...] = ()


_CLUSTERS = {"-M": WordKind.CLUSTER, "--clusters": WordKind.CLUSTER, "--cluster": WordKind.CLUSTER}
_JOBS = {"-j": WordKind.JOB, "--jobs": WordKind.JOB, "--jobid": WordKind.JOB}
_STATES = {"-t": WordKind.STATE, "--state": WordKind.STATE, "--states": WordKind.STATE}
_ONE = Grammar(places=(WordKind.JOB,))
_MEMBER = Grammar(places=(WordKind.JOB, WordKind.TASK))
_SUBMISSION = Grammar(_CLUSTERS)

GRAMMARS: Mapping[str, Grammar] = {
    **dict.fromkeys(("show", "wait", "timeline", "hold", "release", "requeue", "sattach"), _ONE),
    **dict.fromkeys(("logs", "restart", "shell"), _MEMBER),
    "resubmit": Grammar({**_CLUSTERS, "--task": WordKind.TASK}, (WordKind.JOB,)),
    **dict.fromkeys(("submit", "plan", "sbatch", "srun", "salloc"), _SUBMISSION),
    **dict.fromkeys(("check", "login"), Grammar(places=(WordKind.CLUSTER,))),
    **dict.fromkeys(("squeue", "top"), Grammar({**_CLUSTERS, **_JOBS, **_STATES})),
    "sacct": Grammar({**_CLUSTERS, **_JOBS, "-s": WordKind.STATE, "--state": WordKind.STATE}),
    "scancel": Grammar({**_CLUSTERS, **_STATES}, (WordKind.JOB,)),
    "sstat": Grammar(_JOBS),
    "sprio": Grammar({**_CLUSTERS, **_JOBS}),
    "sinfo": Grammar(_CLUSTERS),
    "cron": Grammar(places=(("list", "pause", "resume", "run", "delete"), WordKind.SCHEDULE)),
    "completion": Grammar(places=(("bash", "zsh", "fish"),)),
}
_KEYWORDS = (
    *("show", "hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume", "top"),
    *("update", "write", "ping", "notify", "version"),
)
_CONTROL = Grammar(_CLUSTERS, (_KEYWORDS, WordKind.JOB))
_CONTROL_PLACES: Mapping[str, tuple[WordKind | tuple[str, ...], ...]] = {
    "show": (("job", "step", "node", "partition", "config", "hostnames", "hostlist"),),
    "write": (("batch_script",), WordKind.JOB),
    "update": (),
    "ping": (),
    "version": (),
}


def complete(words: Sequence[str], source: CandidateSource) -> list[str]:
    """The candidates for the last word; `words` begin with the command."""
    last = words[-1]
    grammar = _choose_grammar(words)
    before = words[-2] if len(words) > 2 else ""
    option, equals, value = last.partition("=")
    if equals and option in grammar.options:
        return [f"{option}={found}" for found in _complete_list(grammar.options[option], value, words, source)]
    if before in grammar.options:
        return _complete_list(grammar.options[before], last, words, source)
    place = _count_places(words[1:-1], grammar)
    if not grammar.places:
        return []
    kind = grammar.places[min(place, len(grammar.places) - 1)]
    if not isinstance(kind, tuple):
        found: Sequence[str] = _list(kind, words, source)
    else:
        # A keyword is valid at one position only.
        found = kind if place < len(grammar.places) else ()
    return [one for one in found if one.startswith(last)]


def _choose_grammar(words: Sequence[str]) -> Grammar:
    """The command's grammar; that of scontrol depends on its keywords."""
    if words[0] != "scontrol":
        return GRAMMARS.get(words[0], Grammar())
    keywords = [word for word in words[1:-1] if not word.startswith("-")]
    if not keywords:
        return _CONTROL
    places = _CONTROL_PLACES.get(keywords[0], (WordKind.JOB,))
    if keywords[:2] in (["show", "job"], ["show", "step"]):
        places = (*places, WordKind.JOB)
    return _CONTROL._replace(places=(_KEYWORDS, *places))


def _count_places(words: Sequence[str], grammar: Grammar) -> int:
    """The number of positional words."""
    values = sum(before in grammar.options for before in words)
    return sum(not word.startswith("-") for word in words) - values


def _complete_list(kind: WordKind, text: str, words: Sequence[str], source: CandidateSource) -> list[str]:
    """The candidates for the last part of a list with commas."""
    head, comma, last = text.rpartition(",")
    return [head + comma + found for found in _list(kind, words, source) if found.lower().startswith(last.lower())]


def _list(kind: WordKind, words: Sequence[str], source: CandidateSource) -> list[str]:
    if kind is WordKind.STATE:
        return [state.value for state in State]
    if kind is WordKind.TASK:
        refs = [word for word in words[1:-1] if not word.startswith("-")]
        return source.tasks(refs[0]) if refs else []
    found: Mapping[WordKind, Callable[[], list[str]]] = {
        WordKind.JOB: source.jobs,
        WordKind.CLUSTER: source.clusters,
        WordKind.SCHEDULE: source.schedules,
    }
    return found[kind]()
