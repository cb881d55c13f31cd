"""`concurrent.futures` over jobs: each call is a job of its own on any cluster that shares this file system."""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from overspan.bridge.client.client import Client
from overspan.bridge.client.job_handle import JobHandle
from overspan.bridge.client.messages import CancelOrder
from overspan.bridge.client.records import JobFilter
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.states import State

P = ParamSpec("P")
T = TypeVar("T")

_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5


class JobExecutor(Executor):
    """Runs functions as jobs and gives their futures.

    `job` holds keys of a job file for every call (`resources`, `time`, ...), `cluster` or `pool` names where they run.
    Functions, arguments and results are pickled, so a function has to be importable by name; modules are found by this
    process's `sys.path`. A future's exception is the function's own, or an OverspanError when its job ended without a
    result.
    """

    def __init__(
        self,
        *,
        job: Mapping[str, Any] | None = None,
        cluster: str = "",
        pool: str = "",
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._client = Client(environment=environment)
        self._job = dict(job or {})
        self._options: dict[str, Any] = {"cluster": pool or cluster} if pool or cluster else {}
        self._own_folder = folder is None
        self._folder = folder or tempfile.mkdtemp(prefix="span-executor-")
        self._lock = threading.Lock()
        self._futures: dict[int, tuple[Future[Any], str]] = {}
        self._changed = threading.Condition(self._lock)
        self._cancelled: set[int] = set()
        """Jobs whose futures were told of their cancellation, which a future bears once."""
        self._closing = False
        self._watcher = threading.Thread(target=self._watch, name="span-executor", daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call as a job. Raises ValueError for a function that a job could not import."""
        if getattr(fn, "__module__", None) == "__main__":
            raise ValueError(f"{fn!r} is in the main program, where a job cannot import it; move it into a module")
        folder = tempfile.mkdtemp(prefix="call-", dir=self._folder)
        with open(os.path.join(folder, "call.pickle"), "wb") as file:
            pickle.dump((fn, args, kwargs), file)
        with self._changed:
            if self._closing:
                raise RuntimeError("cannot submit after shutdown")
            handle = self._send(getattr(fn, "__name__", "call"), folder)
            future: Future[T] = Future()
            self._futures[handle.id] = (future, folder)
            self._changed.notify()
        return future

    def _send(self, name: str, folder: str) -> JobHandle:
        command = shlex.join([sys.executable, "-m", "overspan.bridge.client.call", folder])
        envs = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **self._job.get("envs", {})}
        words = "".join(letter if letter.isalnum() else "-" for letter in name)
        return self._client.submit({"name": words, **self._job, "envs": envs, "run": command}, **self._options)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `cancel_futures` cancel what has not started, with `wait` wait for the rest."""
        with self._changed:
            self._closing = True
            if cancel_futures:
                waiting = [str(number) for number, (future, _) in self._futures.items() if future.cancel()]
                if waiting:
                    self._client.cancel(CancelOrder(refs=tuple(waiting)))
            self._changed.notify()
        if wait:
            self._watcher.join()
            self._client.close()
            if self._own_folder:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> None:
        pause = _FIRST_LOOK
        while True:
            with self._changed:
                while not self._futures and not self._closing:
                    self._changed.wait()
                    pause = _FIRST_LOOK
                if not self._futures:
                    return
                ended = self._look()
                pause = _FIRST_LOOK if ended else min(pause * 1.5, _LAST_LOOK)
                self._changed.wait(pause)

    def _look(self) -> int:
        """Settle the futures of jobs that have started or ended; gives how many ended. The lock is held."""
        try:
            rows = self._client.history(JobFilter(ids=tuple(map(str, self._futures)))).rows
        except OverspanError:
            # The daemon is away; the jobs are not.
            return 0
        ended = 0
        for row in rows:
            future, folder = self._futures[row.id]
            state = State(row.state)
            runs = (state is not State.PENDING or future.cancelled()) and self._start(row.id, future, state)
            if state.terminal:
                del self._futures[row.id]
                self._cancelled.discard(row.id)
                ended += 1
                if runs:
                    _settle(future, row, folder)
                shutil.rmtree(folder, ignore_errors=True)
        return ended

    def _start(self, number: int, future: Future[Any], state: State) -> bool:
        """Whether a future runs. One that was cancelled before is told so, and its job is cancelled too."""
        if number in self._cancelled:
            return False
        if future.running() or future.set_running_or_notify_cancel():
            return True
        self._cancelled.add(number)
        if not state.terminal:
            # Without a daemon the job goes on; its result is not needed.
            with suppress(OverspanError):
                self._client.cancel(CancelOrder(refs=(str(number),)))
        return False


def _settle(future: Future[Any], row: JobRow, folder: str) -> None:
    try:
        with open(os.path.join(folder, "result.pickle"), "rb") as file:
            done, value = pickle.load(file)
    except FileNotFoundError:
        what = f"job {row.id} ended {row.state} ({row.reason}) without a result"
        future.set_exception(OverspanError(what, remedy=f"see `span logs {row.id}`"))
    except Exception as error:
        future.set_exception(error)
    else:
        if done:
            future.set_result(value)
        else:
            future.set_exception(value)
