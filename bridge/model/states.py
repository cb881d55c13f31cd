"""Slurm's job states, and the one table of legal moves between them.

Jobs and tasks use the same states. `move` is the only way to change one: a move that the table does not list
is refused, so a late or repeated report can never overwrite a newer state.
"""

from __future__ import annotations

from enum import Enum

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.state_words import CODES, ENDED_WORDS


class State(str, Enum):
    """A job's or task's state; the value is the name that squeue and sacct print."""

    PENDING = "PENDING"
    """Entered at submission, by a requeue and between attempts. The decider takes it out when it starts."""
    CONFIGURING = "CONFIGURING"
    """Resources are granted, not every node has started. Left at the last start or the first failure."""
    RUNNING = "RUNNING"
    """Every node of the attempt has started. Left when the work ends or its end is decided."""
    SUSPENDED = "SUSPENDED"
    """Stopped by the operator; left by resume or by an end."""
    COMPLETING = "COMPLETING"
    """The end is decided, or all programs have ended: processes may still be there, or data on its way to its store."""
    COMPLETED = "COMPLETED"
    """Terminal: ended as it should."""
    FAILED = "FAILED"
    """Terminal: the user's program failed, or could not be started."""
    CANCELLED = "CANCELLED"
    """Terminal: ended by a person, or because the group ended."""
    TIMEOUT = "TIMEOUT"
    """Terminal: the time limit was reached."""
    NODE_FAIL = "NODE_FAIL"
    """Terminal: a node was lost and no recovery was left."""
    PREEMPTED = "PREEMPTED"
    """Terminal: resources were taken away and no recovery was left."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """Terminal: the memory limit was exceeded."""
    BOOT_FAIL = "BOOT_FAIL"
    """Terminal: the node could not be made ready."""
    DEADLINE = "DEADLINE"
    """Terminal: the job could not end before its deadline."""

    @property
    def code(self) -> str:
        """Slurm's compact code, as squeue's ST column prints it."""
        return CODES[self.value]

    @property
    def terminal(self) -> bool:
        """Whether nothing but an operator's requeue or restart leads out of this state."""
        return self in TERMINAL


TERMINAL: frozenset[State] = frozenset(map(State, ENDED_WORDS))

# Attempts that hold, or may hold, processes on a cluster.
LIVE: frozenset[State] = frozenset({State.CONFIGURING, State.RUNNING, State.SUSPENDED, State.COMPLETING})


class StateTransition(NamedTuple):
    """One legal move: from, to, who makes it and why."""

    start: State
    end: State
    by: str
    why: str


_FAILURES: tuple[tuple[State, str, str], ...] = (
    (State.FAILED, "work", "exit code, signal or a failed start"),
    (State.OUT_OF_MEMORY, "cluster", "memory limit exceeded"),
    (State.NODE_FAIL, "cluster", "node lost, no recovery left"),
    (State.PREEMPTED, "cluster", "resources taken away, no recovery left"),
    (State.BOOT_FAIL, "cluster", "node could not be made ready"),
    (State.TIMEOUT, "decider", "time limit reached"),
    (State.DEADLINE, "decider", "deadline reached"),
    (State.CANCELLED, "operator", "cancelled, or the group ended"),
)


def _ends(start: State) -> tuple[StateTransition, ...]:
    return tuple(StateTransition(start, end, by, why) for end, by, why in _FAILURES)


def _leaves(start: State) -> tuple[StateTransition, ...]:
    """The moves out of a state that holds resources."""
    return (
        StateTransition(start, State.COMPLETED, "work", "every node ended as it should"),
        StateTransition(start, State.PENDING, "decider", "another attempt is due, or requeued"),
        *_ends(start),
    )


_ENDS = "end decided, or programs ended whose data is on its way"
MOVES: tuple[StateTransition, ...] = (
    StateTransition(State.PENDING, State.CONFIGURING, "decider", "start decided"),
    StateTransition(State.PENDING, State.RUNNING, "decider", "the last element of an array is on its way"),
    StateTransition(State.CONFIGURING, State.RUNNING, "work", "every node started"),
    StateTransition(State.RUNNING, State.SUSPENDED, "operator", "suspend"),
    StateTransition(State.SUSPENDED, State.RUNNING, "operator", "resume"),
    StateTransition(State.CONFIGURING, State.COMPLETING, "decider", _ENDS),
    StateTransition(State.RUNNING, State.COMPLETING, "decider", _ENDS),
    StateTransition(State.SUSPENDED, State.COMPLETING, "decider", _ENDS),
    StateTransition(
        State.COMPLETING, State.RUNNING, "operator", "a task starts again while data of others is on its way"
    ),
    StateTransition(State.PENDING, State.COMPLETED, "cluster", "ended well before its start was seen"),
    *_ends(State.PENDING),
    *_leaves(State.CONFIGURING),
    *_leaves(State.RUNNING),
    *_leaves(State.SUSPENDED),
    *_leaves(State.COMPLETING),
    *(StateTransition(state, State.PENDING, "operator", "requeue or restart") for state in State if state in TERMINAL),
)

_LEGAL: frozenset[tuple[State, State]] = frozenset((move.start, move.end) for move in MOVES)


def is_legal(start: State, end: State) -> bool:
    """Whether the table has this move; staying where one is always is."""
    return start is end or (start, end) in _LEGAL


def diagram() -> str:
    """The table as a Mermaid state diagram, one arrow for each pair of states."""
    lines: list[str] = ["stateDiagram-v2", "    [*] --> PENDING: submitted"]
    lines += [f"    {move.start.value} --> {move.end.value}: {move.by}: {move.why}" for move in MOVES]
    lines += [f"    {state.value} --> [*]" for state in State if state.terminal]
    return "\n".join(lines) + "\n"


def page() -> str:
    """docs/states.md: the diagram, and one table of the states."""
    rows = [f"| {_describe(state)} |" for state in State]
    return _PAGE.format(diagram=diagram(), rows="\n".join(rows))


def _describe(state: State) -> str:
    entered = [f"{made.by}: {made.why}" for made in MOVES if made.end is state]
    if state is State.PENDING:
        entered.insert(0, "submission")
    left = [made.by for made in MOVES if made.start is state]
    terminal = "yes" if state.terminal else "no"
    cells = (state.value, state.code, "; ".join(dict.fromkeys(entered)), ", ".join(dict.fromkeys(left)), terminal)
    return " | ".join(cells)


_PAGE = """# States

Jobs and tasks have Slurm's states. `bridge/model/states.py` lists every legal move between them, who makes it and why;
`move` applies one and refuses all others. This page is made from that table by `make states`, and a test keeps the two
equal.

*Work* is the user's programs, *cluster* what runs them, *operator* a person, *decider* the lifecycle's rules. Nothing
but an operator's requeue or restart leads out of a terminal state.

| state | code | entered by | left by | terminal |
|---|---|---|---|---|
{rows}

```mermaid
{diagram}```
"""


def move(start: State, end: State) -> State:
    """The state after the move; ValueError when the table does not have it."""
    if not is_legal(start, end):
        raise ValueError(f"no legal move from {start.value} to {end.value}")
    return end


if __name__ == "__main__":
    print(page(), end="")
