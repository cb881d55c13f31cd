"""Mailboxes of workers in pods: in each pod's own run directory, which a command in that pod visits (exec).

A visit waits in the pod for something new, so that an idle worker costs one command in so many seconds. Each has a
thread of its own, since the connection's few threads would be held up by them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches.launches import Launches, parse_handle
from overspan.adapters.kubernetes.manifests.scripts import RUN_DIR
from overspan.adapters.kubernetes.observation.records import MAIN
from overspan.adapters.mailboxes import LOADER, NO_PYTHON, NOTHING
from overspan.bridge.model.errors import Conflict, Unreachable
from overspan.bridge.runtime.pool.mailbox import MAILBOX
from overspan.bridge.runtime.pool.mailbox_visit import LARGEST

_FOLDER = f"{RUN_DIR}/{MAILBOX}"
_NO_PYTHON = "this image has no python3 (3.9 or newer), which a worker of a pool needs"
_NOT_YET = 75
_SHELL = f"""\
d={_FOLDER} n=0
while [ ! -s $d/python ] && [ ! -e $d/start ]; do
  n=$((n + 1))
  [ $n -le 20 ] || {{ [ -d $d ] && break; exit {_NOT_YET}; }}
  sleep 0.5 2>/dev/null || sleep 1 || exit {_NOT_YET}
done
python=python3
[ ! -s $d/python ] || read -r python <$d/python
code=127
[ "$python" = {NO_PYTHON} ] || {{ "$python" -I -S -c "$1"; code=$?; }}
if [ $code = 127 ] && [ -s $d/python ]; then
  printf '%s\\n' 'echo "span: error: {_NO_PYTHON}" >&2; exit 127' >$d/none && mv -f $d/none $d/start
fi
exit $code
"""
"""Waits until the worker's set-up has ended, which may bring python3, and takes the one that the worker finds then.

Where there is none, the worker's job says so in its log and ends, instead of waiting for its program. A folder where
nothing names a python3 is that of a worker whose disk is full, or whose job has the words of an older version: the
python3 of this command is tried, and nothing is concluded where there is none."""
_MOST_ANSWER = 2 * LARGEST
"""Letters of what a visit prints: its largest request, compressed and in base64, and those before it."""
T = TypeVar("T")


class PodMailboxes:
    """The mailboxes of the pods of one cluster."""

    way = "exec"
    python = "python3"
    together = False
    wait = 20.0

    def __init__(self, connection: Connection, launches: Launches) -> None:
        self._connection = connection
        self._launches = launches

    def find_folder(self, handle: str) -> str:
        """The same in every pod."""
        return _FOLDER

    def find_library(self, handle: str) -> str:
        """Empty: nothing of Overspan is in a pod."""
        return ""

    async def run(self, handle: str, line: bytes, seconds: float) -> str:
        """Run it in the worker's pod. Raises Conflict where that does not run, and OverspanError."""
        watched = await self._launches.find(parse_handle(handle))
        pods = self._launches.pods(watched) if watched is not None else ()
        live = [pod for pod in pods if pod.started_at is not None and not pod.ended]
        if not live:
            raise Conflict("its pod does not run")
        pod = max(live, key=lambda each: (each.attempt, each.run))
        words = ("/bin/sh", "-c", _SHELL, "overspan", LOADER)
        command = ExecCommand(pod.namespace, pod.name, MAIN, words, line, _MOST_ANSWER)
        code, said = await run_apart(lambda: self._connection.execute(command, seconds))
        if code == _NOT_YET:
            return NOTHING
        if code:
            raise Unreachable(_NO_PYTHON if code == 127 else f"a visit ended with {code}: {said.strip()[-200:]}")
        return said


async def run_apart(function: Callable[[], T]) -> T:
    """The result of a blocking function in a thread of its own, which does not hold up the end of this process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        # The loop may be closed meanwhile: then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="mailbox", daemon=True).start()
    return await done
