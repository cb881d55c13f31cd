"""Reads `on_checkpoint` and `stop_when`: the watches of a job, and the templates of their jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from overspan.bridge.model.checkpoints.patterns import STEP, CheckpointPattern, parse_pattern
from overspan.bridge.model.documents import encode
from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.evaluations import (
    MAX_PARALLEL,
    Again,
    CheckpointSelection,
    EvaluationOrder,
    EvaluationSpec,
    Readiness,
    ReadyRule,
    ResultKind,
    ResultSource,
    Select,
    StopRule,
    StopWhen,
)
from overspan.bridge.model.names import check_task_name
from overspan.bridge.model.patterns import has_field
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.storage import is_object_url, parse_object_url
from overspan.bridge.readers.evaluation_fields import ON_CHECKPOINT
from overspan.bridge.readers.field_types import Record, TableKey, list_of
from overspan.bridge.readers.placement import check_clusters
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.task_document import absolute
from overspan.bridge.validation.diagnostics import Diagnostics, Fault, nearest
from overspan.bridge.validation.yaml_documents import read_documents
from overspan.bridge.validation.yaml_nodes import Items, Node, Scalar, Table, TableEntry, find_node, key_place, place_in

Values = Mapping[str, Any]

MAX_EVALUATIONS = 16
"""Entries of `on_checkpoint`."""
CHECKPOINT = "checkpoint"
FIELD = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A field of a template; `${NAME}` is the shell's."""
_SHELL_KEYS = ("run", "setup", "on_preemption")
"""Texts in which braces have other meanings too: only the known fields are filled there."""
SEPARATE_FOLDERS = "write %a for the element's index, as in `output`"
_WATCH = Record(
    "the watch", {"on_checkpoint": TableKey(list_of(ON_CHECKPOINT.as_type(), single=True), "", required=True)}
)
_COMPARISON = re.compile(r"\s*(>=|<=|>|<)\s*(\S+)\s*")


@dataclass(frozen=True)
class EvaluationContext:
    """What the watches of a job are read with: its tasks, its primaries, and the reader of job files."""

    context: ReadContext
    tasks: Sequence[str]
    primaries: Collection[str]
    read: Callable[[list[Table], str, ReadContext], JobSpec]


def read_evaluations(
    top: Table, values: Values, around: EvaluationContext, found: Diagnostics
) -> tuple[EvaluationSpec, ...]:
    """The watches of a job; faults go to `found`."""
    entries: Sequence[Values] = values.get("on_checkpoint", ())
    node = top.get("on_checkpoint")
    tables = node.items if isinstance(node, Items) else (node,) if node is not None else ()
    if len(entries) > MAX_EVALUATIONS:
        found.add(f"a job has at most {MAX_EVALUATIONS} evaluations", place_in(top, "on_checkpoint"))
        return ()
    specs: list[EvaluationSpec] = []
    for entry, table in zip(entries, tables, strict=False):
        if not isinstance(table, Table) or not {"path", "pattern"} <= entry.keys():
            continue
        with found.collecting():
            specs.append(_read_entry(table, entry, around, found))
        if "array" in values and not has_field(entry["path"], "a"):
            found.add(word_shared_folder(entry["path"]), place_in(table, "path"), SEPARATE_FOLDERS)
    _check_names(specs, tables, found)
    return tuple(specs)


def read_watch(text: str, file: str, around: EvaluationContext, *, bare: bool = False) -> EvaluationSpec:
    """Read a document with `on_checkpoint` alone, or with `bare` with the keys of an entry. Raises InvalidRequest."""
    found = Diagnostics()
    documents = [node for node in read_documents(text, file) if isinstance(node, Table)]
    if len(documents) != 1:
        raise InvalidRequest("one document with on_checkpoint is wanted", place=Place(file))
    document = documents[0]
    if bare:
        document = Table(document.place, {"on_checkpoint": TableEntry(document.place, document)})
    values = _WATCH.read(document, found)
    specs = read_evaluations(document, values, around, found)
    found.raise_any()
    if len(specs) != 1:
        raise InvalidRequest("one entry of on_checkpoint is wanted", place=Place(file))
    return specs[0]


def read_stop_when(
    top: Table, values: Values, evaluations: Sequence[EvaluationSpec], found: Diagnostics
) -> StopWhen | None:
    """What ends the job as done; None where nothing does."""
    wanted: Values | None = values.get("stop_when")
    if wanted is None:
        return None
    place = place_in(top, "stop_when")
    names = [each.name for each in evaluations]
    name = wanted.get("evaluation", names[0] if len(names) == 1 else "")
    if not names:
        found.add("stop_when needs on_checkpoint", key_place(top, "stop_when"), "say what is evaluated")
        return None
    if name not in names:
        listed = ", ".join(names)
        text = f"{name!r} is no evaluation{nearest(name, names)}" if name else "stop_when has to name an evaluation"
        found.add(text, place_in(top, "stop_when", "evaluation"), f"the evaluations are {listed}")
        return None
    if ("score" in wanted) == ("no_gain" in wanted):
        found.add("stop_when needs one of score, no_gain", place, 'write {score: ">= 0.9"} or {no_gain: 5}')
        return None
    if "no_gain" in wanted:
        return StopWhen(StopRule.NO_GAIN, name, count=wanted["no_gain"])
    match = _COMPARISON.fullmatch(wanted["score"])
    try:
        score = float(match[2]) if match else None
    except ValueError:
        score = None
    if match is None or score is None or score != score:
        found.add(f"{wanted['score']!r} is no comparison", place_in(top, "stop_when", "score"), 'write ">= 0.9"')
        return None
    return StopWhen(StopRule.SCORE, name, score=score, above=match[1].startswith(">"))


def _read_entry(table: Table, entry: Values, around: EvaluationContext, found: Diagnostics) -> EvaluationSpec:
    """One watch. Raises Fault where nothing can be made of it."""
    pattern = _read_pattern(table, entry)
    job_name, template = _read_template(table, entry, pattern, around)
    name = entry.get("name") or (template.name if "task" in entry else _stem(entry["job"]))
    try:
        check_task_name(name)
    except ValueError as error:
        raise Fault(str(error), place_in(table, "name"), "give the evaluation a `name`") from None
    return EvaluationSpec(
        name=name,
        path=_read_path(table, entry, around.context),
        pattern=pattern.text,
        task=_read_source(table, entry, around),
        ready=_read_ready(table, entry, found),
        select=_read_select(table, entry, pattern, found),
        order=entry.get("order", EvaluationOrder.OLDEST),
        max_parallel=entry.get("max_parallel", MAX_PARALLEL),
        again=entry.get("again", Again.NEVER),
        last_after_failure=entry.get("after_failure", True),
        result=_read_result(table, entry, found),
        job_name=job_name,
        template=encode(_limit(template, entry.get("timeout"))),
    )


def word_shared_folder(path: str) -> str:
    """Why a path is none for an array."""
    return f"the elements of an array write into folders of their own, and {path} is one for all"


def _read_pattern(table: Table, entry: Values) -> CheckpointPattern:
    try:
        return parse_pattern(entry["pattern"])
    except ValueError as error:
        raise Fault(str(error), place_in(table, "pattern")) from None


def _read_path(table: Table, entry: Values, context: ReadContext) -> str:
    path = entry["path"]
    if is_object_url(path):
        try:
            return str(parse_object_url(path))
        except ValueError as error:
            raise Fault(str(error), place_in(table, "path")) from None
    if "://" in path:
        raise Fault(
            f"this version cannot watch {path}",
            place_in(table, "path"),
            "name a folder that the job's cluster sees, or one of an object store (s3://BUCKET/FOLDER)",
        )
    return absolute(path, context)


def _read_source(table: Table, entry: Values, around: EvaluationContext) -> str:
    name = entry.get("from")
    if name is None:
        return next((task for task in around.tasks if task in around.primaries), around.tasks[0])
    if name not in around.tasks:
        raise Fault(
            f"the job has no task {name!r}{nearest(name, around.tasks)}",
            place_in(table, "from"),
            f"its tasks are {', '.join(around.tasks)}",
        )
    return str(name)


def _read_ready(table: Table, entry: Values, found: Diagnostics) -> Readiness:
    ready = entry.get("ready", ReadyRule.LAYOUT.value)
    if isinstance(ready, str):
        return Readiness(ReadyRule(ready))
    if len(ready) != 1:
        found.add("ready needs one of marker, quiet", place_in(table, "ready"), "write {marker: DONE} or {quiet: 30s}")
        return Readiness()
    if "quiet" in ready:
        return Readiness(ReadyRule.QUIET, quiet=ready["quiet"])
    marker = ready["marker"]
    if not marker or marker.startswith("/") or ".." in marker.split("/"):
        found.add(f"{marker!r} is no name of a file in the checkpoint", place_in(table, "ready", "marker"))
    return Readiness(ReadyRule.MARKER, marker=marker)


def _read_select(table: Table, entry: Values, pattern: CheckpointPattern, found: Diagnostics) -> CheckpointSelection:
    select = entry.get("select", Select.ALL.value)
    if isinstance(select, str):
        return CheckpointSelection(Select(select))
    if len(select) != 1:
        found.add("select needs one of every, milestones", place_in(table, "select"))
        return CheckpointSelection()
    numbers = [name for name, kind in pattern.fields if kind != "str"]
    if STEP not in numbers and len(numbers) != 1:
        found.add(
            f"select by steps needs a field that is a number, and {pattern.text!r} has none that is the step",
            place_in(table, "select"),
            "write {step:int} in the pattern",
        )
    if "every" in select:
        return CheckpointSelection(Select.EVERY, every=select["every"])
    return CheckpointSelection(Select.MILESTONES, milestones=tuple(sorted(set(select["milestones"]))))


def _read_result(table: Table, entry: Values, found: Diagnostics) -> ResultSource:
    result = entry.get("result")
    if result is None:
        return ResultSource()
    if isinstance(result, str):
        return ResultSource(ResultKind.EXIT)
    if "file" in result and "line" in result:
        found.add("a result is in a file or in a line", place_in(table, "result"), "keep one of them")
    file = result.get("file", "")
    if file.startswith("/") or ".." in file.split("/"):
        found.add(f"{file!r} is no file in the evaluation's run directory", place_in(table, "result", "file"))
    made = ResultSource(score=result.get("score", ""), lowest=result.get("best") == "lowest")
    if "file" in result:
        return replace(made, kind=ResultKind.FILE, file=file)
    return replace(made, line=result.get("line", made.line))


def _read_template(
    table: Table, entry: Values, pattern: CheckpointPattern, around: EvaluationContext
) -> tuple[str, JobSpec]:
    """The evaluation's job with its fields unfilled, and the name that it gives itself."""
    if ("job" in entry) == ("task" in entry):
        raise Fault("an evaluation needs one of job, task", table.place, "write `job: eval.yaml`")
    file, tables = _find_documents(table, entry, around.context)
    fields = {CHECKPOINT, STEP, *pattern.names} if STEP in pattern.names else {CHECKPOINT, *pattern.names}
    checks = Diagnostics()
    for document in tables:
        _check_fields(document, fields, "", checks)
    first = tables[0]
    name = find_node(first, "name")
    job_name = name.text if isinstance(name, Scalar) and FIELD.search(name.text) else ""
    if job_name and isinstance(name, Scalar):
        plain_name = FIELD.sub("0", job_name)
        plain = Scalar(name.place, plain_name, plain_name)
        tables = [
            replace(first, entries={**first.entries, "name": first.entries["name"]._replace(node=plain)}),
            *tables[1:],
        ]
    checks.raise_any()
    wished = check_clusters(entry.get("cluster", ()), place_in(table, "cluster"), around.context)
    context = replace(
        around.context,
        overrides=(),
        cluster=",".join(wished),
        name="",
        hold=False,
        env={},
        secrets={},
        origin=replace(around.context.origin, file=file, text=""),
    )
    spec = around.read(tables, file, context)
    _check_template(spec, Place(file) if "job" in entry else table.place)
    return job_name, replace(spec, environment=dict(around.context.environment))


def _find_documents(table: Table, entry: Values, context: ReadContext) -> tuple[str, list[Table]]:
    """The documents of the evaluation's job, from its file or from `task`, and what messages call them."""
    if "task" in entry:
        node = table.get("task")
        if not isinstance(node, Table):
            raise Fault("task is a mapping", place_in(table, "task"), "write the keys of a task below it")
        return node.place.file, [node]
    path = absolute(entry["job"], context)
    text = context.files.get(path)
    if text is None:
        raise Fault(
            f"the file {entry['job']} cannot be read",
            place_in(table, "job"),
            f"it is looked for as {path}, by the command that submits the job",
        )
    if text.startswith("#!"):
        raise Fault(f"{entry['job']} is a batch script", place_in(table, "job"), "call it in the `run` of a task file")
    documents: list[Table] = []
    for node in read_documents(text, entry["job"]):
        if not isinstance(node, Table):
            raise Fault(f"a document of {entry['job']} is no mapping", node.place)
        documents.append(node)
    if not documents:
        raise Fault(f"{entry['job']} is empty", place_in(table, "job"))
    return entry["job"], documents


def _check_template(spec: JobSpec, place: Place) -> None:
    for given, key in (
        (spec.on_checkpoint, "on_checkpoint"),
        (spec.array, "array"),
        (spec.cron, "cron"),
        (spec.dependency.needs, "needs of other jobs"),
    ):
        if given:
            raise Fault(f"an evaluation has no {key}", place, "leave it out")
    if spec.later:
        words = next(iter(spec.later_places), next(iter(spec.later)))
        raise Fault(f"this version cannot carry out {words}", spec.later_places.get(words, place))


def _check_fields(node: Node, fields: Collection[str], key: str, found: Diagnostics) -> None:
    """Report fields that no checkpoint fills. In shell texts only what looks like a slip of a known one."""
    for place, text, within in _list_texts(node, key):
        for match in FIELD.finditer(text):
            name = match[1]
            if name in fields or (name == "id" and within == "name"):
                continue
            hint = nearest(name, fields)
            if within in _SHELL_KEYS and not hint and name != STEP:
                continue
            found.add(f"no field {{{name}}} is known here{hint}", place, f"the fields are {', '.join(sorted(fields))}")


def _list_texts(node: Node, key: str) -> Iterator[tuple[Place, str, str]]:
    if isinstance(node, Table):
        for name, entry in node.entries.items():
            yield from _list_texts(entry.node, name)
    elif isinstance(node, Items):
        for item in node.items:
            yield from _list_texts(item, key)
    elif isinstance(node.value, str):
        yield node.place, node.text, key


def _limit(spec: JobSpec, timeout: int | None) -> JobSpec:
    """The job with a wall time for the tasks that have none."""
    if not timeout:
        return spec
    return replace(spec, tasks=tuple(task if task.time else replace(task, time=timeout) for task in spec.tasks))


def _stem(path: str) -> str:
    name = path.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]", "-", name.partition(".")[0]) or "eval"


def _check_names(specs: Sequence[EvaluationSpec], tables: Sequence[Node], found: Diagnostics) -> None:
    seen: set[str] = set()
    for spec, table in zip(specs, tables, strict=False):
        if spec.name in seen:
            found.add(
                f"two evaluations are called {spec.name!r}", place_in(table, "name"), "give each a name of its own"
            )
        seen.add(spec.name)
