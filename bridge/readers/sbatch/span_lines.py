"""`#SPAN` lines of a batch script: what sbatch has no option for. Slurm itself takes them for comments.

`#SPAN on_checkpoint=FILE` names a file with the keys of an entry of `on_checkpoint`; several lines are several entries.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from overspan.bridge.model.errors import Place
from overspan.bridge.model.evaluations import EvaluationSpec
from overspan.bridge.readers.evaluations import EvaluationContext, read_watch
from overspan.bridge.readers.job_file import read_job_tables
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.task_document import absolute
from overspan.bridge.validation.diagnostics import nearest, refuse

KEYS = ("on_checkpoint",)
_LINE = re.compile(r"#SPAN(?:\s+(.*))?")


def read_span_lines(text: str, file: str, tasks: Sequence[str], context: ReadContext) -> tuple[EvaluationSpec, ...]:
    """The evaluations that a script asks for before its first command. Raises InvalidRequest at the line."""
    found: list[EvaluationSpec] = []
    for place, name in _list_files(text, file):
        path = absolute(name, context)
        watch = context.files.get(path)
        if watch is None:
            refuse(f"the file {name} cannot be read", place, f"it is looked for as {path}, by the command that submits")
        around = EvaluationContext(context, tasks, tasks[:1], read_job_tables)
        spec = read_watch(watch, name, around, bare=True)
        if any(other.name == spec.name for other in found):
            refuse(f"two evaluations are called {spec.name!r}", place, "give each a `name` of its own")
        found.append(spec)
    return tuple(found)


def _list_files(text: str, file: str) -> Iterator[tuple[Place, str]]:
    """The place and the value of each `on_checkpoint=`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        place = Place(file or "stdin", number, len("#SPAN") + 2)
        try:
            words = shlex.split(match[1] or "")
        except ValueError as error:
            refuse(f"the line cannot be read: {error}", place)
        for word in words:
            key, equals, value = word.partition("=")
            if key not in KEYS:
                refuse(f"unknown key {key!r}{nearest(key, KEYS)}", place, "write #SPAN on_checkpoint=FILE")
            if not equals or not value:
                refuse(f"{key} has no value", place, f"write {key}=FILE")
            yield place, value
