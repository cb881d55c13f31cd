"""What Slurm keeps of a launch: its batch scripts, and the commands that made the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.links import SITE, Link

from overspan.adapters.abilities import KeptForm
from overspan.adapters.contract import Decider
from overspan.adapters.slurm.access.sent_scripts import read_sent
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import Unreachable

SCRIPT = b"#!/bin/sh\necho hi\n"
GROUP = str(GroupHandle(1, 0, 30, "/h/runs/i-1", (GroupPart(7),)))
SET = str(
    GroupHandle(1, 0, 30, "/h/runs/i-1", (GroupPart(7, "a", 1), GroupPart(8, "b", 1)), Decider.DAEMON, True, "i-1-0")
)


def ask(handle: str, answers: dict[str, Done], *, accounting: bool = False) -> KeptForm | None:
    """What is told where scontrol answers so, by native job."""

    def answer(words: Sequence[str]) -> Done:
        if "sacct" in words:
            return Done(1, b"", b"slurmdbd does not answer")
        assert tuple(words[:3]) == ("scontrol", "write", "batch_script") and words[4] == "-"
        return answers[words[3]]

    link = Link()
    link.answer = answer
    queries = Queries(link, 5.0)
    settings = SITE.config if accounting else {"AccountingStorageType": "accounting_storage/none"}
    queries._site = replace(SITE, config=settings)
    return asyncio.run(read_sent(queries, handle))


def test_a_script_is_told_as_it_is() -> None:
    found = ask(GROUP, {"7": Done(0, SCRIPT, b"")})
    assert found == KeptForm("# job 7\n#!/bin/sh\necho hi\n", "as Slurm keeps it")


def test_accounting_that_does_not_answer_hides_no_script() -> None:
    found = ask(GROUP, {"7": Done(0, SCRIPT, b"")}, accounting=True)
    assert found is not None and found.text.endswith("echo hi\n")


def test_a_set_has_a_script_for_each_task() -> None:
    found = ask(SET, {"7": Done(0, SCRIPT, b""), "8": Done(0, b"", b"x: Invalid job id specified\n")})
    assert found is not None
    assert found.text.splitlines() == [
        *("# job 7, task a", "#!/bin/sh", "echo hi", ""),
        *("# job 8, task b", "# Slurm has forgotten its script"),
    ]


def test_a_deferred_task_has_no_script_before_its_turn() -> None:
    handle = GroupHandle(1, 0, 30, "/h/runs/i-1", (GroupPart(7, "a", 1), GroupPart(0, "b", 1)), Decider.DAEMON, True)
    found = ask(str(handle), {"7": Done(0, SCRIPT, b"")})
    assert found is not None and found.text.splitlines()[0] == "# job 7, task a" and "task b" not in found.text


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_that_slurm_has_forgotten_has_none(code: int) -> None:
    words = b"job script retrieval failed: Invalid job id specified\n"
    assert ask(GROUP, {"7": Done(code, b"", words)}) is None


def test_a_slurm_that_does_not_tell_is_not_taken_for_one_that_forgot() -> None:
    words = b"job script retrieval failed: Unable to contact slurm controller (connect failure)\n"
    with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
        ask(GROUP, {"7": Done(1, b"", words)})
