"""Lines of clusters and their columns: the words of `span clusters`, how quickly each answers, its trouble. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.durations import format_elapsed
from overspan.tui.filter_language import Filter, Texts
from overspan.tui.widgets.line_table import Cell, TableColumn

FIELDS = ("kind", "message", "name", "state")
"""What a filter may name."""
SORTED = ("configured", "name", "kind", "state", "jobs", "took")
"""What the clusters are sorted by; as they are configured at first."""
_STYLES = {"up": "good", "idle": "dim", "stale": "bad", "displaced": "bad", "unconfigured": "bad"}
_TROUBLE = ("stale", "displaced", "unconfigured")
_EXPLANATIONS = {
    "up": "",
    "idle": "nothing was sent there yet",
    "stale": "does not answer",
    "displaced": "its jobs are in another place",
    "unconfigured": "is not configured any more",
}


class ClusterLine(NamedTuple):
    """A cluster as the daemon tells it."""

    key: str
    facts: Mapping[str, Any]

    @property
    def state(self) -> str:
        """up, idle, stale, displaced or unconfigured."""
        return str(self.facts.get("state", ""))

    @property
    def jobs(self) -> int:
        """Its live jobs."""
        return int(self.facts.get("jobs") or 0)


def make_lines(
    clusters: Iterable[Mapping[str, Any]], chosen: Filter[Texts], sort: str, reverse: bool = False
) -> list[ClusterLine]:
    """The clusters that match, in an order."""
    lines = [ClusterLine(str(cluster.get("name", "")), cluster) for cluster in clusters]
    lines = [line for line in lines if chosen.matches(list_texts(line))]
    if sort == "configured":
        return lines[::-1] if reverse else lines
    return sorted(lines, key=_sort_key(sort), reverse=reverse)


def list_texts(line: ClusterLine) -> dict[str, str]:
    """What a filter is asked about a cluster."""
    facts = line.facts
    texts = {"name": line.key, "kind": str(facts.get("kind", "")), "state": line.state}
    return {**texts, "message": explain(line)}


def _sort_key(name: str) -> Callable[[ClusterLine], Any]:
    if name == "jobs":
        return lambda line: -line.jobs
    if name == "state":
        return lambda line: (line.state not in _TROUBLE, line.state)
    if name == "took":
        return lambda line: -float(line.facts.get("answer_seconds") or 0.0)
    return lambda line: str(line.facts.get(name, "")).lower()


def explain(line: ClusterLine) -> str:
    """What is wrong there, in words; nothing where all is well."""
    message = " ".join(str(line.facts.get("message") or "").split())
    return message or _EXPLANATIONS.get(line.state, "")


def has_trouble(line: ClusterLine) -> bool:
    """Whether its jobs are out of reach."""
    return line.state in _TROUBLE


def make_columns() -> list[TableColumn[ClusterLine]]:
    return [
        TableColumn("name", "CLUSTER", 14, _show_name),
        TableColumn("kind", "KIND", 10, lambda line, now: Cell(clean_text(str(line.facts.get("kind") or "-")), "text")),
        TableColumn(
            "state", "STATE", 12, lambda line, now: Cell(clean_text(line.state), _STYLES.get(line.state, "bad"))
        ),
        TableColumn("jobs", "JOBS", 5, lambda line, now: Cell(str(line.jobs or "-"), "text"), right=True),
        TableColumn("contact", "ANSWERED", 12, _show_contact, ticks=True),
        TableColumn("took", "TOOK", 7, _show_latency, right=True),
        TableColumn("budget", "CALLS LEFT", 18, _show_budget, from_width=100),
        TableColumn("message", "TROUBLE", 10, _show_message, wide=True, ticks=True),
    ]


def _show_name(line: ClusterLine, now: float) -> Cell:
    return Cell(clean_text(line.key + ("*" if line.facts.get("default") else "")), "accent")


def _show_contact(line: ClusterLine, now: float) -> Cell:
    at = line.facts.get("answered_at")
    if at is None:
        return Cell("-", "dim")
    return Cell(f"{format_elapsed(max(0.0, now - float(at)))} ago", "bad" if has_trouble(line) else "text")


def _show_latency(line: ClusterLine, now: float) -> Cell:
    seconds = line.facts.get("answer_seconds")
    if seconds is None:
        return Cell("-", "dim")
    return Cell(format_latency(float(seconds)), "waiting" if float(seconds) >= 5.0 else "text")


def format_latency(seconds: float) -> str:
    """How long an answer took: 4 ms, 230 ms, 1.2 s, 14 s."""
    if seconds < 1.0:
        return f"{max(1, round(seconds * 1000))} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _show_budget(line: ClusterLine, now: float) -> Cell:
    return Cell(clean_text(str(line.facts.get("calls_left") or "-")), "dim")


def _show_message(line: ClusterLine, now: float) -> Cell:
    since = line.facts.get("since")
    age = f"for {format_elapsed(max(0.0, now - float(since)))}: " if since and has_trouble(line) else ""
    return Cell(clean_text(age + explain(line)), "bad" if has_trouble(line) else "dim")
