"""`span top`: what its words choose, and where no screen can be shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import pytest

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs import top
from overspan.bridge.cli.jobs.top import OPTIONS, check_terminal, read_options
from overspan.bridge.cli.slurm import squeue
from overspan.bridge.client.records import JobFilter, QueueChanges, Stale
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Unreachable
from overspan.bridge.model.options.getopt import parse
from overspan.tui.options import TopOptions
from overspan.tui.queue.shown import ask_enough

NOW = 1_800_000_000.0
ROWS = [
    JobRow(id=1, name="fit", user="ana", state="RUNNING", partition="gpu", cluster="leo", started_at=NOW - 60),
    JobRow(id=2, name="a\x1b[2J", user="bob", state="PENDING", partition="gpu", cluster="leo", reason="Priority"),
]


class OneAnswer:
    """A client whose daemon answers each question once, or not at all."""

    def __init__(self, error: OverspanError | None = None) -> None:
        self.error = error
        self.asked: list[JobFilter] = []

    def __enter__(self) -> OneAnswer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, place: TracebackType | None) -> None:
        pass

    def close(self) -> None:
        pass

    def clusters(self) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return [{"name": "leo"}]

    def queue_changes(self, version: str, wanted: JobFilter) -> QueueChanges:
        if self.error is not None:
            raise self.error
        self.asked.append(wanted)
        return QueueChanges(NOW, "1", True, (), ROWS, (Stale("slurm-a", NOW - 125, "ssh timed out"),))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> OneAnswer:
    made = OneAnswer()
    monkeypatch.setattr(Invocation, "client", lambda self: made)
    return made


def read(*words: str, environment: Mapping[str, str] | None = None) -> TopOptions:
    call = Invocation("top", words, environment or {})
    return read_options(call, parse(squeue.attach_values(words), OPTIONS), call.client)


def test_without_options_all_jobs_are_asked_for() -> None:
    assert read() == TopOptions(wanted=JobFilter(tasks=True, extent="core"))


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["-u", "root,0"], {"users": ("root", "root")}),
        (["-p", "gpu,cpu", "-t", "PD"], {"partitions": ("gpu", "cpu"), "states": ("PENDING",)}),
        (["-t", "all"], {"states": ("all",)}),
        (["-M", "leo"], {"clusters": ("leo",)}),
        (["-M", "all"], {"clusters": ()}),
        (["-n", "fit", "-A", "lab", "-q", "high"], {"names": ("fit",), "accounts": ("lab",), "qos": ("high",)}),
        (["-j", "4,5_1"], {"ids": ("4", "5_1")}),
        (["-j4"], {"ids": ("4",)}),
        (["--start"], {"states": ("PENDING",)}),
    ],
)
def test_options_that_choose_jobs_are_those_of_squeue(
    client: OneAnswer, words: list[str], wanted: dict[str, Any]
) -> None:
    found = read(*words).wanted
    assert found._replace(extent="core") == JobFilter(tasks=True, extent="core")._replace(**wanted)


def test_every_option_of_squeue_that_chooses_jobs_is_there() -> None:
    choosing = {"account", "clusters", "jobs", "me", "name", "nodelist", "partition", "qos", "states", "user"}
    ours = {(option.name, option.letter, option.kind) for option in OPTIONS}
    for option in squeue.OPTIONS:
        if option.name in choosing | {"sort", "format", "Format", "start", "long", "array"}:
            assert (option.name, option.letter, option.kind) in ours


def test_slurms_variables_count(client: OneAnswer) -> None:
    found = read(environment={"SQUEUE_USERS": "root", "SLURM_CLUSTERS": "leo"})
    assert found.wanted.users == ("root",)
    assert found.wanted.clusters == ("leo",)


def test_options_of_the_screen() -> None:
    found = read("--filter=gpu", "--read-only", "--ascii", "--no-mouse", "--theme", "nord", "-r")
    assert found.filter == "gpu"
    assert found.read_only and found.ascii and found.unfolded and not found.mouse
    assert found.theme == "nord"


def test_nodes_become_a_filter() -> None:
    assert read("-w", "n[1-2],gpu.lab", "--filter", "state:r").filter == "node:n1,n2,gpu\\.lab state:r"
    with pytest.raises(InvalidRequest, match="--nodelist=n"):
        read("-w", "n[1-")


@pytest.mark.parametrize(
    ("words", "columns", "sort", "extent"),
    [
        (["-o", "%i %j %P"], ("id", "name", "partition"), "", "core"),
        (["-O", "JobID,Nice"], ("raw_id", "nice"), "", "all"),
        (["-S", "P,-p"], (), "partition,-priority_fraction", "core"),
        (["-S", "-a"], (), "-account", "usual"),
    ],
)
def test_columns_and_order_ask_for_what_they_need(
    words: list[str], columns: tuple[str, ...], sort: str, extent: str
) -> None:
    found = read(*words)
    assert (found.columns, found.sort, found.wanted.extent) == (columns, sort, "core")
    assert ask_enough(found).wanted.extent == extent
    assert found.troubles == ()


def test_what_only_shows_is_told_and_the_rest_counts() -> None:
    found = read("-o", "%i %!", "-S", "j,!", "-u", "no-such-user")
    assert found.columns == ("id",)
    assert found.sort == "name"
    assert found.wanted.users == ("no-such-user",)
    assert found.troubles == (
        "this machine knows no user 'no-such-user'",
        "there is no column '!' in the format '%i %!'",
        "--sort: there is no letter '!' to sort by; those of -o are meant",
    )


@pytest.mark.parametrize("words", [["-t", "RUNING"], ["-j", "x y"], ["-M", "nowhere"]])
def test_what_chooses_jobs_has_to_be_right(client: OneAnswer, words: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        read(*words)


def test_a_daemon_that_does_not_answer_is_told_on_the_screen(client: OneAnswer) -> None:
    client.error = Unreachable("the daemon is not running")
    assert read("-M", "leo").wanted.clusters == ("leo",)


@pytest.mark.parametrize(
    ("name", "terminal", "said"),
    [("xterm", False, "needs a terminal for"), ("dumb", True, "TERM is 'dumb'"), ("", True, "TERM is ''")],
)
def test_without_a_terminal_once_is_named(name: str, terminal: bool, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        check_terminal({"TERM": name}, terminal)
    assert "span top --once" in caught.value.remedy
    assert caught.value.exit_code == 2
    check_terminal({"TERM": "xterm-256color"}, True)


def run(capsys: pytest.CaptureFixture[str], words: Sequence[str], **environment: str) -> tuple[int, str, str]:
    code = top.run(Invocation("top", tuple(words), environment))
    return code, *capsys.readouterr()


def test_once_prints_plain_text(client: OneAnswer, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, ["--once", "--filter", "state:r,pd"], COLUMNS="80")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "1 R  1 PD  │  slurm-a 2m old: ssh timed out",
        "── 2/2 match /state:r,pd ────────────────────────────── by state and priority ──",
        "  JOBID NAME  USER PARTITION CLUSTER ST    TIME NODES NODES OR REASON",
        "  1     fit   ana  gpu       leo     R     1:00     1",
        "  2     a?[2J bob  gpu       leo     PD    0:00     1 (Priority)",
    ]


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LANG": "POSIX"}])
def test_once_is_ascii_where_the_locale_is(
    locale: Mapping[str, str], client: OneAnswer, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, ["--once", "--filter", "Größe"], COLUMNS="80", **locale)
    assert out.isascii() and out.startswith("1 R  1 PD  |  slurm-a 2m old") and "/Gro?e" in out


def test_once_says_what_could_not_be_read(client: OneAnswer, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, ["--once", "-S", "!", "--filter", "usr:ana"], COLUMNS="80")
    assert "there is no letter '!'" in err
    assert "there is no field 'usr'" in out


def test_once_has_colours_where_they_are_wanted(client: OneAnswer, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, ["--once"], FORCE_COLOR="1")
    assert "\x1b[32m" in out
    assert "\x1b[2J" not in out
    _, out, _ = run(capsys, ["--once"], FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in out


def test_once_without_a_daemon_is_an_error(client: OneAnswer, capsys: pytest.CaptureFixture[str]) -> None:
    client.error = Unreachable("the daemon is not running")
    with pytest.raises(Unreachable):
        run(capsys, ["--once"])


def test_a_word_that_is_no_option_is_told() -> None:
    with pytest.raises(InvalidRequest, match="'gpu' is no option"):
        top.run(Invocation("top", ("gpu",), {}))


def test_once_imports_no_textual() -> None:
    code = (
        "import sys, overspan.tui.queue.snapshot, overspan.bridge.cli.jobs.top;"
        "print([name for name in sys.modules if name.startswith('textual')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
