"""Orders about jobs, as data: what each is called, when it makes sense, what it asks before, and how it is sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.messages import CancelOrder
from overspan.bridge.model.durations import format_limit, parse_time_limit
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.states import TERMINAL
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source
from overspan.tui.options import TopOptions
from overspan.tui.queue.tree import Kind, LineKey, QueueTree

WAITING = frozenset({"PENDING"})
STARTED = frozenset({"CONFIGURING", "RUNNING", "SUSPENDED"})
LIVE = WAITING | STARTED | {"COMPLETING"}
ENDED = frozenset(state.value for state in TERMINAL)
FAILED = ENDED - {"COMPLETED", "CANCELLED"}
_WHOLE = frozenset({Kind.JOB, Kind.GROUP, Kind.MEMBER, Kind.ARRAY, Kind.ELEMENT})
"""What can be submitted again: no task of a group alone, and nothing that has not begun to be a job."""
_EVERY = frozenset(Kind)


class OrderAnswer(NamedTuple):
    """What became of an order about one target."""

    ref: str
    text: str
    failed: bool = False


class JobOrder(NamedTuple):
    """An order. `states`: it makes sense where the target, or a member of it, is in one of these."""

    name: str
    verb: str
    """The dialog's button, and the order's name in the log."""
    states: frozenset[str]
    send: Callable[[Source, Sequence[str], Any], Sequence[OrderAnswer]]
    asks: bool = False
    """Whether it asks first about a single job, too: it loses work, or nothing takes it back."""
    question: str = ""
    """What the dialog asks, with `{}` for the jobs; empty: the verb with them."""
    kinds: frozenset[Kind] = _EVERY
    choices: tuple[tuple[str, str], ...] = ()
    """What is chosen from, with what each means."""
    prompt: str = ""
    """What is typed; empty for nothing."""
    read: Callable[[str], Any] = str
    """Reads what was typed. Raises ValueError."""
    together: bool = False
    """Whether all targets go into one request."""

    @property
    def key(self) -> str:
        """The id of its key."""
        return f"job.{self.name}"

    @property
    def opens_dialog(self) -> bool:
        """Whether a single target suffices for a dialog."""
        return self.asks or bool(self.choices or self.prompt)

    def fits(self, kind: Kind, states: Mapping[str, int]) -> bool:
        """Whether the order makes sense for such a target."""
        return kind in self.kinds and any(state in self.states for state in states)


SIGNALS = (
    ("TERM", "end, after cleaning up"),
    ("INT", "as ctrl+c does"),
    ("HUP", "read the settings again, or end"),
    ("USR1", "what the program makes of it"),
    ("USR2", "what the program makes of it"),
    ("STOP", "stand still"),
    ("CONT", "go on"),
    ("KILL", "end at once, without cleaning up"),
)


# --- how they are sent ------------------------------------------------------------------------------------------------


def _send_cancel(source: Source, refs: Sequence[str], signal: Any) -> Sequence[OrderAnswer]:
    """One request for all; each id that could not be cancelled has an answer of its own."""
    # Without --full Slurm signals the steps alone, so a script without steps would get nothing.
    outcome = source.cancel(CancelOrder(refs=tuple(refs), signal=signal or "", full=bool(signal)))
    done = f"signal {signal} sent" if signal else "cancelled"
    text = f"{done}; {outcome.note}" if outcome.note else done
    answers = {ref: OrderAnswer(ref, text) for ref in outcome.done}
    for error in outcome.errors:
        answers[error.ref] = OrderAnswer(error.ref, word_error(error.message, error.remedy), True)
    return [answers.get(ref, OrderAnswer(ref, "the daemon said nothing about it", True)) for ref in refs]


def _send_each(
    done: str, give: Callable[[Source, str], object]
) -> Callable[[Source, Sequence[str], Any], Sequence[OrderAnswer]]:
    def send(source: Source, refs: Sequence[str], value: Any) -> Sequence[OrderAnswer]:
        answers = []
        for ref in refs:
            give(source, ref)
            answers.append(OrderAnswer(ref, done))
        return answers

    return send


def _send_again(failed: bool) -> Callable[[Source, Sequence[str], Any], Sequence[OrderAnswer]]:
    """The value are the changes, by option."""

    def send(source: Source, refs: Sequence[str], value: Any) -> Sequence[OrderAnswer]:
        new = [(ref, source.resubmit(ref, failed, value or {})) for ref in refs]
        return [
            OrderAnswer(ref, word_error(f"submitted again as {job.cluster}:{job.id}", *job.notes)) for ref, job in new
        ]

    return send


def _send_edit(source: Source, refs: Sequence[str], value: Any) -> Sequence[OrderAnswer]:
    """The value are the changes, by the names of `update`: all of a job's, or none."""
    for ref in refs:
        source.update(ref, value)
    return [OrderAnswer(ref, f"changed: {', '.join(value).replace('_', ' ')}") for ref in refs]


def _send_update(
    field: str, show: Callable[[Any], str] = str
) -> Callable[[Source, Sequence[str], Any], Sequence[OrderAnswer]]:
    def send(source: Source, refs: Sequence[str], value: Any) -> Sequence[OrderAnswer]:
        answers = []
        for ref in refs:
            source.update(ref, {field: value})
            answers.append(OrderAnswer(ref, f"{field.replace('_', ' ')} is {show(value)}"))
        return answers

    return send


def _send_scale(source: Source, refs: Sequence[str], value: Any) -> Sequence[OrderAnswer]:
    """The value is a task and its size: the task is empty where targets are tasks, None leaves the size to the file."""
    task, size = value
    answers = []
    for ref in refs:
        if not task and "+" not in ref:
            raise InvalidRequest(f"{ref} has several tasks", remedy="write TASK=N, or choose the line of the task")
        told = source.scale(ref, task, size)
        answers.append(OrderAnswer(ref, "{task}: {present} of {wanted} members are there or come".format(**told)))
    return answers


def read_size(text: str) -> tuple[str, int | None]:
    """Read `N`, `TASK=N`, or `auto` in place of the number. Raises ValueError."""
    task, _, size = map(str.strip, text.rpartition("="))
    return task, None if size == "auto" else read_whole(size)


def read_whole(text: str) -> int:
    """Read a whole number from 0 on. Raises ValueError."""
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def read_integer(text: str) -> int:
    """Read a whole number, which may be negative. Raises ValueError."""
    if not re.fullmatch("[+-]?[0-9]{1,10}", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


# --- the table --------------------------------------------------------------------------------------------------------

ORDERS: tuple[JobOrder, ...] = (
    JobOrder("cancel", "Cancel", LIVE, _send_cancel, asks=True, together=True),
    JobOrder(
        "signal", "Signal", STARTED, _send_cancel, choices=SIGNALS, together=True, question="Send a signal to {}?"
    ),
    JobOrder("hold", "Hold", WAITING, _send_each("held", lambda source, ref: source.hold(ref))),
    JobOrder("release", "Release", LIVE, _send_each("released", lambda source, ref: source.release(ref))),
    JobOrder(
        "suspend", "Suspend", frozenset({"RUNNING"}), _send_each("suspended", lambda source, ref: source.suspend(ref))
    ),
    JobOrder(
        "resume", "Resume", frozenset({"SUSPENDED"}), _send_each("resumed", lambda source, ref: source.resume(ref))
    ),
    JobOrder(
        "requeue",
        "Requeue",
        STARTED | ENDED,
        _send_each("requeued", lambda source, ref: source.requeue(ref)),
        asks=True,
    ),
    JobOrder(
        "restart",
        "Restart",
        STARTED | ENDED,
        _send_each("restarted", lambda source, ref: source.restart(ref)),
        asks=True,
    ),
    JobOrder("resubmit", "Resubmit", LIVE | ENDED, _send_again(failed=False), asks=True, kinds=_WHOLE),
    JobOrder(
        "resubmit_failed",
        "Resubmit failed",
        FAILED,
        _send_again(failed=True),
        asks=True,
        question="Resubmit the failed elements of {}?",
        kinds=frozenset({Kind.ARRAY}),
    ),
    JobOrder("edit", "Edit", LIVE, _send_edit, kinds=_EVERY - {Kind.WAITING}),
    JobOrder(
        "time_limit",
        "Set time limit",
        LIVE,
        _send_update("time_limit", format_limit),
        question="Set the time limit of {}?",
        prompt="time limit: minutes, H:M:S, D-H:M or UNLIMITED",
        read=parse_time_limit,
    ),
    JobOrder(
        "priority",
        "Set priority",
        WAITING,
        _send_update("priority"),
        question="Set the priority of {}?",
        prompt="priority: 0 or more",
        read=read_whole,
    ),
    JobOrder(
        "nice",
        "Set nice",
        WAITING,
        _send_update("nice"),
        question="Set the nice value of {}?",
        prompt="nice: more waits longer",
        read=read_integer,
    ),
    JobOrder(
        "throttle",
        "Set throttle",
        LIVE,
        _send_update("throttle"),
        question="Set the throttle of {}?",
        prompt="elements at once: 0 for no limit",
        read=read_whole,
        kinds=frozenset({Kind.ARRAY}),
    ),
    JobOrder(
        "scale",
        "Scale",
        LIVE,
        _send_scale,
        question="Change how many members {} has?",
        prompt="members: N or TASK=N; auto leaves it to the job's file",
        read=read_size,
        kinds=frozenset({Kind.GROUP, Kind.TASK}),
    ),
    JobOrder(
        "top",
        "Put first",
        WAITING,
        _send_each("first of its user's jobs", lambda source, ref: source.top(ref)),
        question="Put {} first?",
    ),
)


def find_order(name: str) -> JobOrder:
    """The order of that name. Raises KeyError."""
    return {order.name: order for order in ORDERS}[name]


# --- decisions --------------------------------------------------------------------------------------------------------


def refuse_orders(options: TopOptions) -> str:
    """Why no order may be given here; empty where they may."""
    return "read-only: no orders are given" if options.read_only else ""


class TargetChoice(NamedTuple):
    """The targets that an order is for, and what is said of the others."""

    chosen: tuple[Target, ...]
    left_out: tuple[str, ...] = ()


def choose_targets(order: JobOrder, targets: Sequence[Target]) -> TargetChoice:
    """Leave out what the order makes no sense for, and parts of what is a target itself; by cluster and id."""
    heads = {target.key.job for target in targets if target.key.kind == "job"}
    ordered = sorted(targets, key=lambda target: (target.cluster, target.key))
    # A further member is a job of its own: what its group is told does not reach it.
    alone = [target for target in ordered if target.key.kind in ("job", "member") or target.key.job not in heads]
    chosen = tuple(target for target in alone if order.fits(target.kind, target.states))
    return TargetChoice(chosen, tuple(_word_unfit(order, target) for target in alone if target not in chosen))


def check_again(order: JobOrder, targets: Sequence[Target], jobs: QueueTree, known: set[LineKey]) -> TargetChoice:
    """Leave out what has changed since it was chosen so that the order makes no sense any more.

    `known` are the lines that the queue had then; those of the history alone are not looked for.
    """
    chosen, left_out = [], []
    for target in targets:
        node = jobs.find(target.key)
        if node is None:
            # What can be done about ended jobs can be done about those the queue has forgotten.
            if target.key in known and not order.states & ENDED:
                left_out.append(f"{target.label} is not in the queue any more")
            else:
                chosen.append(target)
        elif order.fits(target.kind, node.states):
            chosen.append(target)
        else:
            left_out.append(f"{target.label} is {word_states(node.states)} now")
    return TargetChoice(tuple(chosen), tuple(left_out))


def _word_unfit(order: JobOrder, target: Target) -> str:
    if target.kind not in order.kinds:
        return f"{target.label} ({target.kind.value}): not possible"
    return f"{target.label} is {word_states(target.states)}"


def word_states(states: Mapping[str, int]) -> str:
    """`RUNNING`, or `3 RUNNING, 1 FAILED`."""
    if len(states) == 1:
        return next(iter(states))
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
