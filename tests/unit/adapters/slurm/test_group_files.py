"""Documents of a group's launch, orders that are added once, journals that are read from afar, limits, and its form."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.group_facts import HEAD, NODES, PLACE, SERVER, TRAINER
from tests.unit.adapters.slurm.samples import NOW, check_golden, read_file, read_script

from overspan.adapters.contract import Launch, Order
from overspan.adapters.slurm.groups.files import NO_FOLDER, append_words, render_placement_file
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.groups.limits import LimitChanges, change_limits, list_limits
from overspan.adapters.slurm.groups.ordering import LivePart, order_words, plan_order
from overspan.adapters.slurm.groups.packing import NodeSize
from overspan.adapters.slurm.groups.placement import plan_group
from overspan.adapters.slurm.groups.rendering import render_launch
from overspan.adapters.slurm.observation.journals import (
    LIMIT,
    JournalChunk,
    JournalRequest,
    read_orders,
    read_page,
    read_parts,
    render_reads,
)
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.orders.command_lines import OrderSteps, withdraw_words
from overspan.adapters.slurm.rendering.forms import is_group, refuse_unknown
from overspan.adapters.slurm.settings import Settings
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import InvalidRequest, Rejected
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core.orders import OrderFile
from overspan.bridge.runtime.core.run_directory import RunDirectory

HANDLE = GroupHandle(7, 0, 30, "/r/runs/inst-7", (GroupPart(42),))
JOB = HANDLE.list_jobs()[0]


class TestForm:
    @pytest.mark.parametrize(
        ("text", "group"),
        [
            ("name: x\nrun: a\n", False),
            ("name: x\nnum_nodes: 2\nrun: a\n", True),
            ("name: x\nresources: {job_recovery: {max_restarts_on_errors: 2}}\nrun: a\n", True),
            ("name: x\nresources: {job_recovery: {recover_on_exit_codes: [3]}}\nrun: a\n", True),
            ("name: x\nready: {tcp: 80}\nrun: a\n", True),
            (HEAD + TRAINER + SERVER, True),
        ],
    )
    def test_what_needs_a_supervisor_is_a_group(self, text: str, group: bool) -> None:
        job = read_file(text)
        assert is_group(job) is group
        refuse_unknown(job)

    def test_a_batch_script_is_itself(self) -> None:
        assert not is_group(read_script("#!/bin/sh\n#SBATCH -N2\n#SBATCH hetjob\n#SBATCH -N1\nsrun x\n"))

    def test_an_array_has_no_form(self) -> None:
        with pytest.raises(InvalidRequest, match="arrays as a whole"):
            refuse_unknown(read_script("#!/bin/sh\n#SBATCH --array=1-3\ntrue\n"))


class TestFiles:
    def test_golden_placement(self) -> None:
        text = HEAD + TRAINER + SERVER + "---\nname: data\nshare: trainer\nnum_nodes: 2\nrun: d\n"
        plan = plan_group(read_file(text), (NodeSize("", 4, 8000, count=4),))
        document = json.loads(render_placement_file("inst-7-0", plan))
        check_golden("placement.json", json.dumps(document, indent=1) + "\n")

    def test_the_plan_is_read_by_the_supervisor(self, tmp_path: Path) -> None:
        job = read_file(HEAD + TRAINER + SERVER)
        files = dict(render_launch(Launch("inst-7-0", job, {"SPAN_X": "1"}), Settings(), PLACE, False).files)
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        plan = RunDirectory(str(tmp_path), 0).read_plan()
        assert (plan.token, plan.job, plan.cluster, plan.environment) == ("inst-7-0", job, "rig", {"SPAN_X": "1"})
        assert sorted(files) == ["placement.0.json", "plan.0.json"]

    def test_elsewhere_the_job_runs_in_its_run_directory(self) -> None:
        job = read_file(HEAD + TRAINER + SERVER + "workdir: /scratch\n")
        found = render_launch(Launch("inst-7-0", job, {"SPAN_X": "1"}), Settings(shared=False), PLACE, False)
        document = json.loads(dict(found.files)["plan.0.json"])
        sent = decode(Job, document["job"])
        assert document["environment"] == {}
        assert [task.workdir for task in sent.spec.tasks] == ["/r/runs/inst-7", "/scratch"]
        assert sent.spec.task("server").secrets == {"KEY": "hidden"}
        assert "hidden" not in found.submission.script + shlex.join(found.submission.argv)

    def test_the_clusters_own_options_stand_below_the_groups(self) -> None:
        settings = Settings(partition="gpu", account="lab", qos="low")
        text = HEAD.replace("name: g", "name: g\nslurm: {qos: high}") + TRAINER + SERVER
        nodes = (*NODES, *(replace(node, partition="gpu", default=False) for node in NODES[:2]))
        place = PLACE._replace(nodes=nodes)
        lines = render_launch(Launch("i-7-0", read_file(text)), settings, place, True).submission.script.splitlines()
        wanted = {"--account=lab", "--qos=high", "--partition=gpu", "--hold", "--no-requeue"}
        assert {f"#SBATCH {word}" for word in wanted} <= set(lines)
        assert "#SBATCH --qos=low" not in lines

    def test_what_fits_on_no_nodes_is_rejected(self) -> None:
        job = read_file(HEAD + TRAINER.replace("cpus: 2", "cpus: 5") + SERVER)
        with pytest.raises(Rejected, match="Requested node configuration is not available"):
            render_launch(Launch("i-7-0", job), Settings(), PLACE, False)


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, input=stdin.encode(), capture_output=True, timeout=60, check=False)


class TestOrderFile:
    def test_an_order_is_added_once_for_its_token(self, tmp_path: Path) -> None:
        path = str(tmp_path / "orders.0.jsonl")
        cancel, change = events.Cancel(NOW, by='it\'s "me"'), events.SetTime(NOW, 5, "server")
        given: list[tuple[str, Event]] = [("a", cancel), ("b", change), ("a", cancel), ('"a', change)]
        for token, event in given:
            assert run(*append_words(path, token, event)).returncode == 0
        assert [(order.seq, order.event) for order in OrderFile(path).read()] == [(1, cancel), (2, change), (3, change)]
        assert list(read_orders(JournalChunk(0, Path(path).read_bytes()))) == [(1, cancel), (2, change), (3, change)]
        assert Path(path).stat().st_mode & 0o777 == 0o600

    def test_a_torn_line_is_no_order(self, tmp_path: Path) -> None:
        path = tmp_path / "orders.0.jsonl"
        words = append_words(str(path), "a", events.Cancel(NOW))
        run(*words)
        whole = path.read_bytes()
        path.write_bytes(whole[:-2])
        assert run(*words).returncode == 0
        assert [order.seq for order in OrderFile(str(path)).read()] == [2]

    def test_a_launch_without_a_folder_takes_none(self, tmp_path: Path) -> None:
        words = append_words(str(tmp_path / "no" / "orders.0.jsonl"), "a", events.Cancel(NOW))
        assert run(*words).returncode == NO_FOLDER


class TestReading:
    def read(self, wanted: Sequence[JournalRequest]) -> dict[int, JournalChunk]:
        done = run("/bin/sh", stdin=render_reads(wanted))
        assert (done.returncode, done.stderr) == (0, b"")
        return read_parts(done.stdout, len(wanted))

    def test_all_files_are_read_at_once(self, tmp_path: Path) -> None:
        texts = [b'{"event":1}\n', b"", b'{"a":1}\n{"b":2}\n{"torn', b"x" * (LIMIT + 9)]
        paths = [tmp_path / f"it's {number}" for number in range(4)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text)
        offsets = (0, 0, 8, 0)
        wanted = [JournalRequest(str(path), offset) for path, offset in zip(paths, offsets, strict=True)]
        parts = self.read([*wanted, JournalRequest(str(tmp_path / "none")), JournalRequest(str(paths[0]), 12)])
        assert parts.keys() == {0, 2, 3}
        assert parts[2] == JournalChunk(22, b'{"b":2}\n{"torn')
        assert (parts[3].size, len(parts[3].data), parts[3].cut(0)) == (LIMIT + 9, LIMIT, True)
        assert self.read([JournalRequest(str(tmp_path / "none"))]) == {}

    def test_a_page_has_whole_lines_only(self) -> None:
        hold = '{"event":"Hold","at":1}\n'
        order = '{"event":"Release","at":2,"order":3}\n'
        text = f'{{"format":1}}\n{hold}{{"to\n{{"event":"Later"}}\n{order}{{"event":"Hold","at":9}}'.encode()
        page = read_page(JournalChunk(100 + len(text), text), 100, 5.0)
        first = 100 + text.index(b"\n") + 1 + len(hold)
        assert [(line.event, line.order) for line in page.lines] == [(events.Hold(1), 0), (events.Release(2), 3)]
        assert page.lines[0].end == first
        assert (page.closed, page.more, page.asked) == (False, False, 5.0)

    def test_the_end_closes_it(self) -> None:
        text = b'{"event":"Hold","at":1}\n{"end":true}\n'
        page = read_page(JournalChunk(len(text), text), 0, 1)
        assert (page.closed, page.lines[0].end) == (True, 24)
        assert read_page(JournalChunk(99, text[:30]), 0, 1).more
        assert read_page(None, 7, 1).lines == ()


class TestOrders:
    def plan(self, event: Event, phase: Phase | None, begun: bool = False) -> OrderSteps:
        steps = plan_order(HANDLE, Order("t", "", event), [LivePart(JOB, 0, begun, phase)], False)
        assert steps is not None
        return steps

    @pytest.mark.parametrize(
        ("event", "words"),
        [
            (events.Hold(1), "scontrol hold 42"),
            (events.Release(1), "scontrol release 42"),
            (events.SetPriority(1, 5), "scontrol update JobId=42 Priority=5"),
            (events.SetNice(1, 5), "scontrol update JobId=42 Nice=5"),
            (events.SetBegin(1, None), "scontrol update JobId=42 StartTime=now"),
        ],
    )
    def test_what_slurm_is_told(self, event: Event, words: str) -> None:
        assert self.plan(event, Phase.QUEUED) == OrderSteps((tuple(words.split()),))

    def test_what_waits_is_taken_back_without_a_word_to_the_supervisor(self) -> None:
        assert self.plan(events.Expire(1, "failover", "local"), Phase.QUEUED) == OrderSteps((withdraw_words("42"),))

    def test_a_cancel_is_written_before_slurm_is_asked(self) -> None:
        cancel = events.Cancel(1)
        append = order_words(JOB, Order("t", "", cancel))
        pending = ("timeout", "20", "scancel", "--state=PENDING", "42")
        hint = ("timeout", "20", "scancel", "--state=RUNNING", "--batch", "--signal=USR1", "42")
        assert self.plan(cancel, Phase.QUEUED) == OrderSteps((append, pending))
        assert self.plan(cancel, Phase.RUNNING) == OrderSteps((append, pending))
        assert self.plan(cancel, None) == OrderSteps((append, pending))
        assert self.plan(cancel, Phase.RUNNING, True) == OrderSteps((append,), (hint,))
        assert self.plan(cancel, Phase.STARTING) == OrderSteps((append, ("timeout", "20", "scancel", "42")))

    @pytest.mark.parametrize(
        "event", [events.Requeue(1), events.Restart(1, "a"), events.Signal(1, 10), events.Cancel(1, "a")]
    )
    def test_what_the_supervisor_is_told(self, event: Event) -> None:
        assert self.plan(event, Phase.RUNNING).hints == ()
        steps = self.plan(event, Phase.RUNNING, True)
        assert steps.first == (order_words(JOB, Order("t", "", event)),)
        assert len(steps.hints) == 1

    def test_what_a_waiting_group_has_nothing_for(self) -> None:
        for event in (events.Requeue(1), events.Restart(1), events.Signal(1, 10)):
            assert self.plan(event, Phase.QUEUED) == OrderSteps(())

    def test_a_suspension_is_slurms_and_told_to_the_supervisor_behind_it(self) -> None:
        suspend, resume = self.plan(events.Suspend(1), None), self.plan(events.Resume(2), None)
        assert suspend.first == (("scontrol", "suspend", "42"),) and len(suspend.then) == 1
        assert resume.first[1] == ("scontrol", "resume", "42")

    def test_what_has_no_form_is_not_carried_out(self) -> None:
        order = Order("t", "", events.SetThrottle(1, 3))
        assert plan_order(HANDLE, order, [LivePart(JOB, 0, True, None)], False) is None


class TestLimits:
    def limits(self, *given: Event) -> list[int | None]:
        text = HEAD + TRAINER + SERVER.replace("run:", "slurm: {partition: other}\nrun:")
        nodes = (*NODES, *(replace(node, partition="other", default=False) for node in NODES))
        files = dict(
            render_launch(Launch("i-7-0", read_file(text)), Settings(), PLACE._replace(nodes=nodes), False).files
        )
        return list_limits(files["plan.0.json"], files["placement.0.json"], given)

    def test_each_component_lasts_as_long_as_its_tasks(self) -> None:
        assert self.limits() == [3600 + 20 + 10 + 30 + 60, 3600 + 20 + 10 + 30 + 60]
        longer = self.limits(events.SetTime(NOW, 7200, "trainer"))
        assert longer == [7200 + 30 + 60] * 2
        assert self.limits(events.SetTime(NOW, 600, "server"))[1] == 600 + 30 + 60
        assert self.limits(events.SetTime(NOW, None, "trainer"))[0] is None

    def test_longer_limits_come_first_and_shorter_ones_behind(self) -> None:
        update = ("scontrol", "update")
        longer = change_limits(42, [60, 60], [120, 60])
        assert longer == LimitChanges(((*update, "JobId=42+0", "TimeLimit=00:02:00"),))
        shorter = change_limits(42, [None], [60])
        assert shorter == LimitChanges(shorter=((*update, "JobId=42", "TimeLimit=00:01:00"),))
        assert change_limits(42, [60, None], [60, None]) == LimitChanges()
