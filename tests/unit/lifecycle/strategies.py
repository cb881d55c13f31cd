"""Random jobs and random events, for the laws of the lifecycle."""

from __future__ import annotations

from hypothesis import strategies as st

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.spec import (
    Backoff,
    Form,
    JobSpec,
    Need,
    NeedKind,
    OnFailure,
    RestartScope,
    RetryPolicy,
    SignalBefore,
    TaskSpec,
)
from overspan.bridge.model.storage import FlushPolicy, MountMode, OnFlushFailure, StorageMount

NAMES = ("a", "b", "c")
CACHED = StorageMount("/out", "s3://bucket/out", MountMode.MOUNT_CACHED, "s3")
TIMES = st.integers(1000, 1400).map(float)
NUMBERS = st.integers(-1, 3)
SCOPES = st.sampled_from([None, *RestartScope])

POLICIES = st.builds(
    RetryPolicy,
    max_restarts_on_errors=st.integers(0, 3),
    recover_on_exit_codes=st.sampled_from([(), (42,)]),
    max_recoveries=st.integers(0, 3),
    max_restarts=st.integers(0, 5),
    backoff=st.builds(Backoff, first=st.sampled_from([0.0, 1.0, 10.0])),
)


def _needs(earlier: tuple[str, ...]) -> st.SearchStrategy[tuple[Need, ...]]:
    if not earlier:
        return st.just(())
    need = st.builds(Need, st.sampled_from(earlier), st.sampled_from(NeedKind))
    return st.one_of(st.just(()), need.map(lambda found: (found,)))


def _tasks(name: str, earlier: tuple[str, ...], is_primary: st.SearchStrategy[bool]) -> st.SearchStrategy[TaskSpec]:
    return st.builds(
        TaskSpec,
        name=st.just(name),
        form=st.sampled_from(Form),
        num_nodes=st.integers(1, 3),
        primary=is_primary,
        termination_delay=st.sampled_from([0, 5, 60]),
        grace_period=st.sampled_from([0, 3, 30]),
        time=st.sampled_from([None, 20, 100]),
        signal=st.sampled_from([None, SignalBefore("USR1", 30)]),
        on_failure=st.sampled_from(OnFailure),
        restart=SCOPES,
        retry=POLICIES,
        needs=_needs(earlier),
        storage=st.sampled_from([(), (), (CACHED,)]),
        flush=st.builds(FlushPolicy, st.sampled_from([0, 30, 600]), st.sampled_from(OnFlushFailure)),
    )


SPECS: st.SearchStrategy[JobSpec] = st.builds(
    JobSpec,
    name=st.just("g"),
    tasks=st.one_of(
        st.tuples(_tasks("a", (), st.just(True))),
        st.tuples(
            _tasks("a", (), st.booleans()),
            _tasks("b", ("a",), st.just(True)),
            _tasks("c", ("a", "b"), st.booleans()),
        ),
    ),
    restart=SCOPES,
    deadline=st.sampled_from([None, None, 1200.0]),
    hold_on_failure=st.sampled_from([0, 0, 40]),
    hold=st.booleans(),
    requeue=st.sampled_from([None, False]),
)

GROUPS: st.SearchStrategy[JobSpec] = st.builds(
    JobSpec,
    name=st.just("g"),
    tasks=st.tuples(
        _tasks("a", (), st.just(False)), _tasks("b", ("a",), st.just(True)), _tasks("c", ("a", "b"), st.booleans())
    ),
    restart=SCOPES,
    hold_on_failure=st.sampled_from([0, 40]),
)

_TASK = st.sampled_from((*NAMES, "nobody"))
_TASK_OR_ALL = st.sampled_from(("", *NAMES, "nobody"))
_CAUSES = st.sampled_from([*(cause.value for cause in Cause), "nonsense"])
_RUNS = st.integers(0, 1)
_EXITS = st.sampled_from([0, 0, 1, 42, 143])
_SIGNALS = st.sampled_from([0, 0, 9, 15])

REPORTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.Queued, TIMES, st.sampled_from(["Priority", "Resources"]), st.one_of(st.none(), TIMES)),
    st.builds(events.Granted, TIMES, st.just((("a", 0, "n0", "127.0.0.1", (1,)),))),
    st.builds(events.Refused, TIMES, st.just("no")),
    st.builds(events.NodeStarted, TIMES, _TASK, NUMBERS, NUMBERS, _RUNS),
    st.builds(
        events.NodeEnded, TIMES, _TASK, NUMBERS, NUMBERS, _RUNS, _EXITS, _SIGNALS, st.one_of(st.just(""), _CAUSES)
    ),
    st.builds(events.TaskReady, TIMES, _TASK, NUMBERS),
    st.builds(events.LaunchLost, TIMES, NUMBERS, _CAUSES),
    st.builds(events.Flushing, TIMES, _TASK, NUMBERS, st.integers(0, 99)),
    st.builds(events.Flushed, TIMES, _TASK, NUMBERS, st.sampled_from(["", "no answer"]), st.integers(0, 99)),
)
ORDERS: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.Cancel, TIMES, _TASK_OR_ALL, flush=st.booleans()),
    st.builds(events.Hold, TIMES, by_admin=st.booleans()),
    st.builds(events.Release, TIMES),
    st.builds(events.Requeue, TIMES, hold=st.booleans()),
    st.builds(events.Restart, TIMES, _TASK_OR_ALL),
    st.builds(events.Signal, TIMES, st.integers(0, 64), _TASK_OR_ALL),
    st.builds(events.SetTime, TIMES, st.sampled_from([None, 0, 10, 500]), _TASK_OR_ALL),
    st.builds(events.SetPriority, TIMES, st.integers(0, 9)),
    st.builds(events.Preempt, TIMES, st.booleans(), st.sampled_from([None, 0, 50])),
    st.builds(events.Suspend, TIMES),
    st.builds(events.Resume, TIMES),
)
DECISIONS: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.Launch, TIMES, _TASK, NUMBERS),
    st.builds(events.NodeRelaunch, TIMES, _TASK, NUMBERS, NUMBERS, NUMBERS),
    st.builds(events.Notice, TIMES, _TASK, TIMES),
    st.builds(events.Warn, TIMES, _TASK, NUMBERS, TIMES),
    st.builds(events.Terminate, TIMES, _TASK, NUMBERS, _CAUSES, TIMES),
    st.builds(events.Kill, TIMES, _TASK, NUMBERS),
    st.builds(events.AbandonFlush, TIMES, _TASK, NUMBERS),
    st.builds(events.HoldOver, TIMES),
    st.builds(events.Expire, TIMES, _CAUSES),
)
ANY_EVENTS = st.one_of(REPORTS, ORDERS, DECISIONS)
