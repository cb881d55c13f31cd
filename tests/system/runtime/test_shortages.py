"""A machine that is short of processes, memory or files for a moment: no job fails of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts

SHORT = """
import errno, os, sys
from overspan.bridge.runtime.core import gated_child, forker, shim
from overspan.bridge.runtime.local import supervisor

def lack(module, name, number):
    whole = getattr(module, name)
    def call(*words):
        if not os.path.exists(ENOUGH):
            raise OSError(number, os.strerror(number))
        return whole(*words)
    setattr(module, name, call)

ENOUGH = {enough!r}
lack({module}, {function!r}, errno.{number})
sys.exit(supervisor.main(sys.argv[1:]))
"""
PLACES = [
    ("forker.node_records", "take_claim", "EMFILE"),
    ("shim", "fork_child", "EAGAIN"),
    ("gated_child", "_open_files", "ENFILE"),
    ("gated_child", "start_program", "ENOMEM"),
]


@pytest.mark.parametrize(("module", "function", "number"), PLACES)
def test_a_start_that_lacks_something_is_tried_again_and_says_what_was_short(
    hosts: Hosts, module: str, function: str, number: str
) -> None:
    enough = hosts.work / "enough"
    launched = hosts.add(TaskSpec("job", run="echo ran >> ran; exit 3"))
    code = SHORT.format(enough=str(enough), module=module, function=function, number=number)
    hosts.start(launched.host, code)
    (end, *_) = launched.until("NodeEnded")
    assert end["cause"] == "node", end
    assert any(words in end["detail"] for words in ("ulimit -u", "ulimit -n", "memory is short", "no open file")), end
    waiting = launched.replay()
    assert waiting.state in (State.PENDING, State.CONFIGURING)
    enough.touch()
    job = hosts.finish(launched)
    assert (job.state, job.exit_code) == (State.FAILED, 3)
    assert (hosts.work / "ran").read_text() == "ran\n"
