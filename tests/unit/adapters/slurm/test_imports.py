"""Jobs that somebody gave to Slurm itself: what is made of them, and that they are never submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from tests.unit.adapters.slurm.links import Link
from tests.unit.adapters.slurm.records import ENDED
from tests.unit.adapters.slurm.samples import NOW, read_script

from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.adapters.slurm.access.imports import NativeJobImporter
from overspan.adapters.slurm.commands.listings import TimeLimit
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.commands.states import read_state
from overspan.adapters.slurm.handles import parse_handle
from overspan.adapters.slurm.observation.ownership import list_own
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import new_job

RECORD = QueueRecord(
    shown="42",
    raw=42,
    array_job=None,
    array_index=None,
    waiting=None,
    het_job=None,
    het_offset=None,
    state=read_state("RUNNING"),
    reason="None",
    exit=None,
    restarts=1,
    user="ada",
    partition="gpu",
    nodes=("n1", "n2"),
    batch_host="n1",
    num_nodes=2,
    submit=NOW,
    start=NOW + 5,
    end=None,
    limit=TimeLimit(3600),
    used=5,
    priority=1,
    name="train",
    comment="mine",
)
FIELDS = {
    "NumCPUs": "8",
    "WorkDir": "/scratch/ada",
    "Command": "/scratch/ada/train.sh",
    "StdOut": "/scratch/ada/out.txt",
    "StdErr": "/scratch/ada/err.txt",
    "Account": "lab",
    "QOS": "(null)",
    "Requeue": "1",
}


SCRIPT = "#!/bin/sh\nsrun train\n"


def write_script(words: Sequence[str]) -> Done:
    assert list(words[:3]) == ["scontrol", "write", "batch_script"] and words[4] == "-"
    return Done(0, SCRIPT.encode(), b"")


class Asked:
    """A cluster that knows these records."""

    timeout = 10.0

    def __init__(self, *records: QueueRecord, ended: Sequence[AccountingRecord] = ()) -> None:
        self.transport = Link()
        self.transport.answer = write_script
        self.records = {record.raw: record for record in records}
        self.ended = list(ended)

    async def site(self) -> Site:
        return Site((23, 2), {"AccountingStorageType": "accounting_storage/slurmdbd"}, "ada", "/home/ada")

    async def queue(self, ids: Sequence[int]) -> dict[int, QueueRecord]:
        return {raw: record for raw, record in self.records.items() if {raw, record.array_job} & set(ids)}

    async def runs(self, names: Sequence[str]) -> dict[str, list[AccountingRecord]]:
        return {name: [record for record in self.ended if str(record.raw) == name] for name in names}

    async def describe(self, native: str) -> dict[str, str]:
        return FIELDS if int(native) in self.records else {}


def importer(*records: QueueRecord, ended: Sequence[AccountingRecord] = ()) -> NativeJobImporter:
    return NativeJobImporter(cast("Queries", Asked(*records, ended=ended)))


async def no_sbatch(launches: Sequence[Launch]) -> dict[str, Accepted | Refusal]:
    raise AssertionError("a job of others was submitted")


class TestFinding:
    def test_the_facts_of_a_running_job(self) -> None:
        foreign = asyncio.run(importer(RECORD).find_job("42"))
        spec, task = foreign.spec, foreign.spec.tasks[0]
        assert (spec.adopted, spec.name, spec.partition, spec.account, spec.qos) == ("42", "train", "gpu", "lab", "")
        assert (task.num_nodes, task.resources.cpus, task.time, task.workdir) == (2, 4.0, 3600, "/scratch/ada")
        assert (task.streams.output, task.streams.error) == ("/scratch/ada/out.txt", "/scratch/ada/err.txt")
        assert task.run == SCRIPT
        assert spec.requeue is True and task.retry.max_recoveries == 0
        assert (spec.comment, spec.origin.user, foreign.submitted_at) == ("mine", "ada", NOW)

    def test_one_that_only_the_accounting_knows(self) -> None:
        foreign = asyncio.run(importer(ended=[ENDED]).find_job("42"))
        assert (foreign.spec.adopted, foreign.spec.tasks[0].time) == ("42", None)
        assert foreign.spec.tasks[0].run.startswith("#!")

    def test_an_element_of_an_array(self) -> None:
        element = replace(RECORD, raw=77, array_job=70, array_index=3)
        rest = replace(RECORD, raw=70, array_job=70, waiting=parse_array("5-9"))
        assert asyncio.run(importer(element, rest).find_job("70_3")).spec.adopted == "77"
        for native, said in (("70", "is an array"), ("70_5", "while it waits")):
            with pytest.raises(InvalidRequest, match=said):
                asyncio.run(importer(element, rest).find_job(native))

    @pytest.mark.parametrize(
        ("record", "native", "error"),
        [
            (RECORD, "43", NotFound),
            (RECORD, "42.batch", InvalidRequest),
            (RECORD, "-1", InvalidRequest),
            (replace(RECORD, user="bob"), "42", Denied),
            (replace(RECORD, comment="x overspan=inst-7-0"), "42", Conflict),
            (replace(RECORD, het_job=42, het_offset=0), "42", InvalidRequest),
        ],
    )
    def test_what_cannot_be_watched(self, record: QueueRecord, native: str, error: type[Exception]) -> None:
        with pytest.raises(error):
            asyncio.run(importer(record).find_job(native))

    @pytest.mark.parametrize(
        "record",
        [
            replace(ENDED, comment="overspan=inst-7-0"),
            replace(ENDED, submit_line="sbatch --comment=x overspan=inst-7-0 train.sh"),
        ],
    )
    def test_one_of_overspans_own_that_only_the_accounting_knows(self, record: AccountingRecord) -> None:
        with pytest.raises(Conflict):
            asyncio.run(importer(ended=[record]).find_job("42"))


class TestTaking:
    def launch(self, number: int = 0) -> Launch:
        spec = asyncio.run(importer(RECORD).find_job("42")).spec
        return Launch(f"inst-9-{number}", replace(new_job(9, spec, NOW), launch=number))

    def test_it_is_taken_with_the_run_that_it_is_at(self) -> None:
        (answer,) = asyncio.run(importer(RECORD).submit([self.launch()], no_sbatch)).values()
        assert isinstance(answer, Accepted) and answer.native_id == "42"
        handle = parse_handle(answer.handle)
        assert (handle.native, handle.run, handle.nodes, handle.output) == (42, 1, 2, "/scratch/ada/out.txt")

    def test_a_requeue_by_slurm_is_the_same_job(self) -> None:
        (answer,) = asyncio.run(importer(replace(RECORD, restarts=2)).submit([self.launch(1)], no_sbatch)).values()
        assert isinstance(answer, Accepted) and parse_handle(answer.handle).run == 2

    def test_what_only_the_accounting_knows_is_its_last_run(self) -> None:
        (answer,) = asyncio.run(importer(ended=[ENDED, ENDED]).submit([self.launch()], no_sbatch)).values()
        assert isinstance(answer, Accepted) and parse_handle(answer.handle).run == 1

    def test_a_number_that_was_overspans_before_the_numbers_were_reset(self) -> None:
        before = replace(ENDED, submit=NOW - 9e7, submit_line="sbatch --comment=overspan=inst-7-0 x.sh")
        (answer,) = asyncio.run(importer(ended=[before, ENDED]).submit([self.launch()], no_sbatch)).values()
        assert isinstance(answer, Accepted)
        handle = parse_handle(answer.handle)
        assert list_own(handle, [before, ENDED])[handle.run] == ENDED

    def test_what_is_gone_is_refused_and_not_submitted(self) -> None:
        (answer,) = asyncio.run(importer().submit([self.launch(1)], no_sbatch)).values()
        assert isinstance(answer, Refusal) and not answer.transient

    def test_others_are_submitted(self) -> None:
        async def submit(launches: Sequence[Launch]) -> dict[str, Accepted | Refusal]:
            return {launch.token: Accepted(launch.token, "h", "1") for launch in launches}

        own = [Launch(f"inst-{number}-0", read_script("#!/bin/sh\ntrue\n", number=number)) for number in (1, 2)]
        answers = asyncio.run(importer(RECORD).submit([own[0], self.launch(), own[1]], submit))
        assert sorted(answers) == ["inst-1-0", "inst-2-0", "inst-9-0"]
