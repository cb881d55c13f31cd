"""Lines of evaluations and their columns: each watch with its checkpoints below it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.state_words import CODES, ENDED_WORDS
from overspan.tui.evaluations.answers import KnownWatch, WatchKey, is_over
from overspan.tui.filter_language import Filter, Texts
from overspan.tui.queue.columns import style_of as style_of_job
from overspan.tui.schedules.lines import format_span
from overspan.tui.widgets.line_table import Cell, TableColumn

FIELDS = ("checkpoint", "cluster", "evaluation", "job", "name", "note", "state", "user")
"""What a filter may name; `job` and `name` are those of the watched job, or of the evaluation's own."""
SORTED = ("step", "score", "ended", "state")
"""What the checkpoints of a watch are sorted by; the latest step comes first."""
WAITING, REFUSED, INCOMPLETE = "WAITING", "REFUSED", "INCOMPLETE"
"""States of evaluations without a job; the last one is a checkpoint's that is not complete yet."""
_CODES = {**CODES, WAITING: "WT", REFUSED: "RF", INCOMPLETE: "-"}
_STYLES = {WAITING: "waiting", REFUSED: "bad", INCOMPLETE: "dim"}
_WIDE_TABLE = 110
"""The width from which names have more room."""
_WORDS = (("COMPLETED", "done"), ("RUNNING", "run"), ("PENDING", "pending"), (WAITING, "wait"))
"""How evaluations are counted in words; every other state is named."""


class EvaluationKey(NamedTuple):
    """A line: of a watch, or of the n-th evaluation of one of its checkpoints."""

    watch: WatchKey
    checkpoint: str = ""
    number: int = -1


class EvaluationLine(NamedTuple):
    """A watch, or one of its evaluations (`one`); `folded` is None where nothing is below it."""

    key: EvaluationKey
    watch: KnownWatch
    one: Mapping[str, Any] | None = None
    folded: bool | None = None
    last: bool = False

    @property
    def job(self) -> int:
        """The watched job, or the evaluation's own; 0 where it has none yet."""
        return self.key.watch.job if self.one is None else int(self.one.get("job") or 0)

    @property
    def state(self) -> str:
        """The state of that job, or one of those that evaluations without a job have."""
        return str(self.watch.summary.get("job_state") if self.one is None else self.one.get("state") or "")

    @property
    def user(self) -> str:
        """Whose job is watched."""
        return str(self.watch.summary.get("user") or "")

    @property
    def cluster(self) -> str:
        """Where that job is; of an evaluation that an earlier version has submitted, where the checkpoints are."""
        own = self.one.get("cluster") if self.one is not None else ""
        return str(own or self.watch.summary.get("cluster") or "")

    @property
    def name(self) -> str:
        """The watched job with the evaluation's name, or the checkpoint with the number of its run by hand."""
        if self.one is None:
            return f"{self.watch.summary.get('job_name') or self.key.watch.job}: {self.key.watch.name}"
        return self.key.checkpoint + (f" (run {self.one['run']})" if self.one.get("run") else "")

    @property
    def label(self) -> str:
        """What it is, in a sentence, fit for a terminal."""
        return clean_text(self.name if self.one is None else f"{self.key.watch.name} of {self.name}")


class EvaluationView(NamedTuple):
    """What is chosen of the evaluations, and in which order."""

    filter: Filter[Texts]
    sort: str = SORTED[0]
    reverse: bool = False
    folded: Collection[WatchKey] = frozenset()


# --- lines ------------------------------------------------------------------------------------------------------------


def make_lines(watches: Iterable[KnownWatch], view: EvaluationView) -> list[EvaluationLine]:
    """The lines: watches as they were told, their checkpoints in the order of the view.

    A watch that matches shows all of its checkpoints, another one those that match, unfolded.
    """
    lines: list[EvaluationLine] = []
    for watch in watches:
        head = EvaluationLine(EvaluationKey(watch.key), watch)
        members = list_members(watch)
        whole = view.filter.matches(list_texts(head))
        if not whole:
            members = [line for line in members if view.filter.matches(list_texts(line))]
        if not whole and not members:
            continue
        folded = whole and watch.key in view.folded
        lines.append(head._replace(folded=folded))
        if members and not folded:
            members.sort(key=_sort_key(view.sort, bool(watch.summary.get("lowest_is_best"))), reverse=view.reverse)
            lines += [*members[:-1], members[-1]._replace(last=True)]
    return lines


def list_members(watch: KnownWatch) -> list[EvaluationLine]:
    """The evaluations of a watch, and the checkpoints that are not complete, by step, the latest first."""
    numbers: Counter[str] = Counter()
    lines = []
    for one in sorted(watch.evaluations, key=lambda one: int(one.get("id") or 0)):
        name = str(one.get("checkpoint", ""))
        lines.append(EvaluationLine(EvaluationKey(watch.key, name, numbers[name]), watch, one))
        numbers[name] += 1
    for each in watch.incomplete:
        name = str(each.get("checkpoint", ""))
        # Once it is complete its evaluation takes this line, with the cursor on it.
        one = {"checkpoint": name, "state": INCOMPLETE, "trouble": each.get("why")}
        lines.append(EvaluationLine(EvaluationKey(watch.key, name, numbers[name]), watch, one))
    lines.reverse()
    lines.sort(key=lambda line: -find_step(line))
    return lines


def find_step(line: EvaluationLine) -> float:
    """The step of an evaluation; those without one come last, those that are not complete first."""
    if line.state == INCOMPLETE:
        return float("inf")
    step = line.one.get("step") if line.one is not None else None
    return float("-inf") if step is None else float(step)


def list_texts(line: EvaluationLine) -> dict[str, str]:
    """What a filter is asked about a line."""
    texts = {"evaluation": line.key.watch.name, "job": str(line.job or ""), "state": line.state, "user": line.user}
    if line.one is None:
        return {**texts, "name": str(line.watch.summary.get("job_name") or ""), "cluster": line.cluster}
    return {**texts, "checkpoint": line.key.checkpoint, "cluster": line.cluster, "note": word_note(line)}


def _sort_key(name: str, lowest_is_best: bool) -> Callable[[EvaluationLine], Any]:
    """How the checkpoints of a watch are ordered: they come by step, the latest first."""
    if name == "score":
        return lambda line: (find_score(line) is None, (find_score(line) or 0.0) * (1 if lowest_is_best else -1))
    if name == "ended":
        return lambda line: -float(line.one.get("ended_at") or 0.0) if line.one else 0.0
    if name == "state":
        return lambda line: (line.state in ENDED_WORDS, line.state)
    return lambda line: 0


def find_score(line: EvaluationLine) -> float | None:
    """The score of an evaluation; of a watch the best one."""
    score = line.watch.summary.get("best_score") if line.one is None else line.one.get("score")
    return None if score is None else float(score)


# --- columns ----------------------------------------------------------------------------------------------------------


def make_columns(width: int, ascii_only: bool = False) -> list[TableColumn[EvaluationLine]]:
    """The columns for a table of so many cells."""
    name = 34 if width >= _WIDE_TABLE else 22
    return [
        TableColumn("name", "  CHECKPOINT", name, _show_name(ascii_only), wide=width < _WIDE_TABLE),
        TableColumn("step", "STEP", 7, _show_step, right=True, from_width=66),
        TableColumn("state", "ST", 3, _show_state),
        TableColumn("score", "SCORE", 9, _show_score(ascii_only), right=True),
        TableColumn("job", "JOB", 6, _show_job, right=True),
        TableColumn("ended", "ENDED", 9, _show_end, from_width=90, ticks=True),
        TableColumn("note", "NOTES", 12, _show_note, wide=True),
    ]


def _show_name(ascii_only: bool) -> Callable[[EvaluationLine, float], Cell]:
    folded, unfolded, inner, last = ("+ ", "- ", " |- ", " `- ") if ascii_only else ("▸ ", "▾ ", " ├ ", " └ ")

    def show(line: EvaluationLine, now: float) -> Cell:
        if line.one is None:
            return Cell((folded if line.folded else unfolded) + clean_text(line.name), "text")
        return Cell((last if line.last else inner) + clean_text(line.name), "accent")

    return show


def _show_step(line: EvaluationLine, now: float) -> Cell:
    step = line.one.get("step") if line.one is not None else None
    return Cell("" if step is None else f"{float(step):.15g}", "text")


def style_of(state: str) -> str:
    """The style of an evaluation's state."""
    return _STYLES.get(state) or style_of_job(state)


def _show_state(line: EvaluationLine, now: float) -> Cell:
    code = _CODES.get(line.state, line.state[:3])
    return Cell(clean_text(code or "-"), style_of(line.state) if code else "dim")


def _show_score(ascii_only: bool) -> Callable[[EvaluationLine, float], Cell]:
    mark = "*" if ascii_only else "★"

    def show(line: EvaluationLine, now: float) -> Cell:
        score = find_score(line)
        if score is None:
            return Cell("")
        best = line.one is None or bool(line.one.get("best"))
        return Cell(f"{score:.6g}{mark if best else ' '}", "good" if best else "text")

    return show


def _show_job(line: EvaluationLine, now: float) -> Cell:
    return Cell(str(line.job) if line.job else "-", "accent" if line.job else "dim")


def _show_end(line: EvaluationLine, now: float) -> Cell:
    at = (line.watch.summary if line.one is None else line.one).get("ended_at")
    return Cell(f"{format_span(now - float(at), 1)} ago" if at else "", "dim")


def _show_note(line: EvaluationLine, now: float) -> Cell:
    if line.one is None:
        hinders = str(line.watch.summary.get("note") or "")
        counts = word_counts(
            line.watch.summary.get("states") or {}, int(line.watch.summary.get("incomplete_count") or 0)
        )
        text = "; ".join(filter(None, (hinders, counts))) or "no checkpoint yet"
        return Cell(clean_text(text), "waiting" if hinders else "dim")
    good = line.state == "COMPLETED" and not line.one.get("trouble")
    return Cell(clean_text(word_note(line)), "dim" if good or line.state == INCOMPLETE else style_note(line.state))


def style_note(state: str) -> str:
    """The style of why an evaluation waits, or failed."""
    return "waiting" if state == "COMPLETED" else style_of(state)


def word_counts(states: Mapping[str, Any], incomplete: int = 0) -> str:
    """`12 done, 1 run, 2 wait, 1 FAILED`."""
    parts = [f"{states[state]} {word}" for state, word in _WORDS if states.get(state)]
    parts += [f"{count} {state}" for state, count in sorted(states.items()) if state not in dict(_WORDS) and count]
    return ", ".join([*parts, *([f"{incomplete} incomplete"] if incomplete else [])])


def word_note(line: EvaluationLine) -> str:
    """Why an evaluation waits, failed, or has no score; of one that has, its other values."""
    one = line.one or {}
    trouble, reason = _join(one.get("trouble")), _join(one.get("reason"))
    if line.state == WAITING:
        most = (line.watch.document or {}).get("max_parallel")
        return "waits for its turn" + (f": {most} at once" if most else "")
    if line.state == INCOMPLETE:
        return f"not complete: {trouble}"
    return "; ".join(filter(None, (reason, trouble))) or _word_values(one)


def _join(text: object) -> str:
    """A text in one line."""
    return " ".join(str(text or "").split())


def _word_values(one: Mapping[str, Any]) -> str:
    """The values of a result besides its score: numbers, and short texts."""
    values: Mapping[str, Any] = one.get("values") or {}
    shown = ((key, value) for key, value in values.items() if isinstance(value, (int, float, str)))
    parts = [
        f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {_join(value)}"
        for key, value in shown
        if isinstance(value, bool) or value != one.get("score")
    ]
    return ", ".join(parts)


def describe(line: EvaluationLine) -> str:
    """What a line of the table may have no room for."""
    return _describe_watch(line.watch) if line.one is None else _describe_one(line, line.one)


def _describe_watch(watch: KnownWatch) -> str:
    facts = watch.document or {}
    where = f"{facts['path'].rstrip('/')}/{facts['pattern']}" if facts.get("path") and facts.get("pattern") else ""
    best = "the lowest score is the best" if watch.summary.get("lowest_is_best") else ""
    passed = f"{facts['passed']} left out by the selection" if facts.get("passed") else ""
    guess = "that a checkpoint is complete is a guess (`ready:`)" if facts.get("guess") else ""
    closed = "nothing more comes" if watch.summary.get("closed") else ""
    parts = (where, _join(watch.summary.get("note")), best, passed, guess, closed)
    return f"{watch.key.name} of job {watch.key.job}: " + "; ".join(filter(None, parts))


def _describe_one(line: EvaluationLine, one: Mapping[str, Any]) -> str:
    score = "" if one.get("score") is None else f"score {float(one['score']):.15g}"
    best = "the best one" if one.get("best") else ""
    job = f"job {line.job} on {line.cluster}" if line.job else ""
    end = f"ended {format_timestamp(one['ended_at'])}" if is_over(one) else ""
    values = _word_values(one) if one.get("score") is not None else ""
    parts = (score, best, values, word_note(line) if word_note(line) != values else "", job, end)
    return f"{line.key.watch.name} of {line.name} is {line.state}: " + ", ".join(filter(None, parts))


def count_live(watches: Sequence[KnownWatch]) -> tuple[int, int]:
    """How many evaluations run, and how many wait, in all watches."""
    states: Counter[str] = Counter()
    for watch in watches:
        states.update({state: int(count) for state, count in (watch.summary.get("states") or {}).items()})
    waiting = states["PENDING"] + states[WAITING]
    ended = sum(states[state] for state in (*ENDED_WORDS, REFUSED, "UNKNOWN"))
    return states.total() - waiting - ended, waiting
