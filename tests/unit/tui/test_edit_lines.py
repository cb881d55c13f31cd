"""The small file: how it is written and read, what is proposed, and what each order makes of it."""

from __future__ import annotations

import pytest
from tests.unit.tui.fake_source import NOW, FakeSource, job
from tests.unit.tui.order_stories import make_targets
from tests.unit.tui.queue_lab import make_array, make_group

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.tui.actions.edit_forms import EDIT_FIELDS, FORMS
from overspan.tui.actions.edit_lines import EditFile, EditLine, explain_no_proposal, propose_more
from overspan.tui.actions.orders import ORDERS

FILE = EditFile((EditLine("time", "1:00:00"), EditLine("mem", "8G"), EditLine("account")), ("ntasks",), ("said",))


def test_a_file_as_it_was_opened_changes_nothing() -> None:
    assert FILE.write() == "# said\ntime: 1:00:00\nmem: 8G\naccount:\n# also: ntasks\n"
    assert FILE.read(FILE.write()) == {} == FILE.read("")


def test_only_what_differs_is_sent() -> None:
    assert FILE.read("time: 2:00:00\nmem: 8G\n") == {"time": "2:00:00"}
    # What is emptied, or taken out, is as it was.
    assert FILE.read("time:\naccount: lab \n") == {"account": "lab"}
    assert FILE.read("  ntasks : 4\n# mem: 9G") == {"ntasks": "4"}
    assert FILE.read("time: 2024-01-01T10:00:00") == {"time": "2024-01-01T10:00:00"}


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("time 2h", "line 1: write KEY: VALUE"),
        ("\ntiem: 2h", "line 2: there is nothing called 'tiem'; did you mean 'time'"),
        ("wrap: ls", "line 1: there is nothing called 'wrap'"),
        ("mem: 1G\nmem: 2G", "line 2: mem stands there twice"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        FILE.read(text)


def test_twice_the_time_or_the_memory_is_proposed_and_counts_as_changed() -> None:
    lines = propose_more(FILE.lines, {"": ("TIMEOUT",)})
    file = FILE._replace(lines=lines)
    assert "# proposed: twice the time, since it ended by TIMEOUT; it was 1:00:00\ntime: 2:00:00\n" in file.write()
    assert file.read(file.write()) == {"time": "2:00:00"}
    assert file.read(file.write().replace("time: 2:00:00", "time: 1:00:00")) == {}
    memory = propose_more(FILE.lines, {"": ("COMPLETED", "OUT_OF_MEMORY")})
    assert [line.proposal for line in memory] == ["", "16G", ""]
    per_cpu = propose_more([EditLine("mem-per-cpu", "1500M")], {"": ("OUT_OF_MEMORY",)})
    assert per_cpu[0].proposal == "3000M"
    assert propose_more(FILE.lines, {"": ("FAILED",)}) == FILE.lines


def test_what_has_no_limit_is_not_doubled() -> None:
    lines = (EditLine("time", "UNLIMITED"), EditLine("mem", ""))
    assert propose_more(lines, {"": ("TIMEOUT", "OUT_OF_MEMORY")}) == lines
    assert explain_no_proposal(lines, {"": ("OUT_OF_MEMORY",)}) == (
        "the memory was too small (OUT_OF_MEMORY), and none was asked for: give mem",
    )


def test_of_a_group_the_task_that_ran_out_is_proposed_more() -> None:
    source = FakeSource()
    source.values["42"] = {"trainer.time": "10:00", "trainer.mem": "8G", "rollout.time": "10:00", "partition": "gpu"}
    source.details["42"] = {
        "tasks": [{"name": "trainer", "state": "OUT_OF_MEMORY"}, {"name": "rollout", "state": "TIMEOUT"}]
    }
    [target] = make_targets(*make_group(42))
    file = FORMS["resubmit"].ask(source, target)
    assert file.read(file.write()) == {"trainer.mem": "16G", "rollout.time": "20:00"}
    assert file.read("rollout.nodes: 3\nqos: high\ntime: 1h") == {"rollout.nodes": "3", "qos": "high", "time": "1h"}
    with pytest.raises(ValueError, match="nothing called 'nodes'"):
        file.read("nodes: 3")
    assert "TASK.gres" in file.write()


def test_several_have_blank_fields() -> None:
    targets = make_targets(job(1), job(2, state="TIMEOUT", ended_at=NOW))
    file = FORMS["resubmit"].make_blank(targets)
    assert file.read(file.write()) == {} and file.write().startswith("# an empty value means: as it was")
    assert file.read("mem: 4G") == {"mem": "4G"}
    assert {line.key for line in FORMS["edit"].make_blank(targets).lines} == {"time", "name", "comment"}


def test_what_can_be_edited_depends_on_the_state() -> None:
    source = FakeSource()
    source.details["7"] = {"name": "fit", "comment": "x", "begin": 0, "priority": 5, "tasks": [{"time_limit": 3600}]}
    [running] = make_targets(job(7))
    [waiting] = make_targets(job(7, state="PENDING"))
    file = FORMS["edit"].ask(source, running)
    assert "time: 1:00:00\nname: fit\ncomment: x\n" in file.write()
    assert (
        "# only of a waiting job: partition, account, qos, nodes, mem, dependency, begin, priority, nice\n"
        in file.write()
    )
    every = FORMS["edit"].ask(source, waiting)
    assert [line.key for line in every.lines] == [each.key for each in EDIT_FIELDS if each.key != "throttle"]
    assert "nodes:\nmem:\ndependency:\n" in every.write()
    source.details["7"] = {"dependency": "afterok:5(unfulfilled)", "tasks": [{"nodes": 2, "memory": 8192}]}
    every = FORMS["edit"].ask(source, waiting)
    assert "nodes: 2\nmem: 8G\ndependency: afterok:5\n" in every.write()
    assert "# dependency: none takes it away\n" in every.write()
    assert FORMS["edit"].read({"dependency": "none", "mem": "4G"}, NOW) == {"dependency": "", "memory": 4096}
    array = make_targets(*make_array(44))[0]
    source.details["44"] = {"array": {"throttle": 4}, "tasks": []}
    assert EditLine("throttle", "4") in FORMS["edit"].ask(source, array).lines


def test_what_was_typed_is_read_as_scontrol_would() -> None:
    read = FORMS["edit"].read
    assert read({"time": "2h", "begin": "now+1hour", "nice": "-5", "name": "x"}, NOW) == {
        "time_limit": 7200,
        "begin": NOW + 3600,
        "nice": -5,
        "name": "x",
    }
    for changes, trouble in (({"priority": "x"}, "priority: 'x' is not"), ({"begin": "?"}, "begin: "), ({}, "nothing")):
        with pytest.raises(ValueError, match=trouble):
            read(changes, NOW)


def test_hostile_values_are_one_harmless_line() -> None:
    hostile = "x\x1b]0;t\x07\nmem: 900G\x9b2J\u202e"
    file = EditFile((EditLine("comment", hostile), EditLine("mem", "1G")))
    assert file.read(file.write()) == {} and len(file.write().splitlines()) == 2
    assert not UNSAFE.search(file.write().replace("\n", ""))


def test_every_form_is_an_order() -> None:
    assert set(FORMS) <= {order.name for order in ORDERS}
