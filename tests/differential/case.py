"""How a case is written: a name, files in its folder, and commands that are played on both installations."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

HELD = "sbatch --hold"
WRAP = "--wrap true"


@dataclass(frozen=True)
class Step:
    """One command. With `until` it is repeated until its stdout matches, and is not compared."""

    argv: tuple[str, ...]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    until: str = ""


@dataclass(frozen=True)
class Case:
    """Commands in order, in an empty folder that holds `files`; `unordered` output is compared line by line, sorted."""

    name: str
    steps: tuple[Step, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    unordered: bool = False

    @property
    def verb(self) -> str:
        """The command that the case is about: the first word of its name."""
        return self.name.partition("/")[0]

    def to_document(self) -> dict[str, Any]:
        """The case as the player reads it."""
        steps = [{**asdict(step), "argv": list(step.argv)} for step in self.steps]
        document = {"name": self.name, "steps": steps, "files": dict(self.files), "unordered": self.unordered}
        # What it says depends on what runs.
        return {**document, "alone": self.verb == "sinfo"}


def lists(module: str) -> dict[str, Any]:
    """The tables of a module of cases: the YAML file of its name."""
    found: dict[str, Any] = yaml.safe_load(Path(module).with_suffix(".yaml").read_text(encoding="utf-8"))
    return found


def step(line: str, stdin: str = "", until: str = "", **env: str) -> Step:
    """A command line in shell quoting."""
    return Step(tuple(shlex.split(line)), stdin, env, until)


def case(name: str, *steps: Step | str, files: Mapping[str, str] | None = None) -> Case:
    """A case; a step that is only a command line may be a string."""
    made = (one if isinstance(one, Step) else step(one) for one in steps)
    return Case(name, tuple(made), files or {})


def table(topic: str, look: str, options: Iterable[str]) -> list[Case]:
    """A case for each text of options: a held job with them, and what squeue's letters `look` show of it."""
    return [case(f"{topic}/{text or 'nothing'}", f"{HELD} {text} {WRAP}", shown(look)) for text in options]


def shown(look: str, job: str = "{1}") -> Step:
    """Letters of squeue for a job that may be over."""
    return step(f"squeue -h -t all -j {job} -o '{look}'")


def script(name: str, text: str, look: str = "%j|%l|%D|%C", options: str = "", **env: str) -> Case:
    """A held job from the script `job.sh` with this text, and what squeue shows of it."""
    return case(name, step(f"{HELD} {options} job.sh", **env), shown(look), files={"job.sh": text})


def over(job: str = "{1}") -> Step:
    """Wait until a job has ended."""
    ended = "^(CD|F|CA|TO|NF|OOM|BF|DL)$"
    return step(f"squeue -h -t all -j {job} -o %t", until=ended)
