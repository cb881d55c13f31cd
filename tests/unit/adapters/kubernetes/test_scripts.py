"""The programs that run in pods, run here by the shells that images have."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.adapters.kubernetes.launches.start_gates import OPEN
from overspan.adapters.kubernetes.logs.end_marks import leave_out, make_mark
from overspan.adapters.kubernetes.manifests.scripts import (
    CHOOSE_SHELL,
    LOG,
    POD_DIR,
    RUN_DIR,
    UNPACK,
    WORK,
    ScriptContext,
    Work,
    escape,
    make_work_command,
)

DEADLINE = 120.0
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


def expand(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a word of a command (third_party/forked/golang/expansion)."""
    found, place = "", 0
    while place < len(text):
        if text[place] == "$" and place + 1 < len(text):
            following = text[place + 1]
            if following == "$":
                found, place = found + "$", place + 2
                continue
            close = text.find(")", place)
            if following == "(" and close > 0:
                name = text[place + 2 : close]
                found, place = found + variables.get(name, f"$({name})"), close + 1
                continue
        found, place = found + text[place], place + 1
    return found


@given(st.text(alphabet="$()AB\n x", max_size=40))
def test_no_text_is_expanded_on_its_way(text: str) -> None:
    assert expand(escape(text), {"A": "wrong", "B": "wrong", "": "wrong", "A$": "wrong"}) == text


def test_only_what_would_change_is_escaped() -> None:
    assert escape("echo $HOME ${X} $(date) $$ $((1 + 1))") == "echo $HOME ${X} $$(date) $$$$ $$((1 + 1))"


def test_the_texts_are_arguments() -> None:
    work = Work("a", "b; exit $1", "t", ("x",), (("/p", "q"),))
    made = make_work_command(work)
    assert made["command"][:2] == ["/bin/sh", "-c"]
    assert made["args"][2:] == ["", "", "a", "b; exit $1", "t", "", "1", "/p", "q", "x"]
    assert make_work_command(work, shares=True)["args"] == made["args"][2:]


@pytest.mark.parametrize("shares", [False, True])
def test_the_work_has_its_variables_as_they_were(tmp_path: Path, shares: bool) -> None:
    names = sorted({name for name in re.findall(r"[a-z]\w*", f"{WORK} {CHOOSE_SHELL}") if "overspan" not in name})
    given = {name: "mine" for name in names if name not in ("exec", "PATH")}
    made = make_work_command(Work("", "env", "t"), shares=shares)
    program = {"OVERSPAN_PROGRAM": move(WORK, tmp_path)} if shares else {}
    words = [expand(move(text, tmp_path), {}) for text in (*made["command"], *made["args"])]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **given, **program}
    printed = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    seen = dict(line.partition("=")[::2] for line in printed.splitlines())
    assert {name: seen.get(name) for name in given} == given
    assert set(seen) - set(environment) <= {"PWD", "OLDPWD", "SHLVL", "_"}
    assert "OVERSPAN_PROGRAM" not in seen


def move(program: str, folder: Path) -> str:
    """The program with another place for what belongs to the pod."""
    (folder / "pod").mkdir(exist_ok=True)
    (folder / "run").mkdir(exist_ok=True)
    moved = program.replace(POD_DIR, str(folder / "pod")).replace(RUN_DIR, str(folder / "run"))
    return moved.replace("/dev/termination-log", str(folder / "message"))


@contextmanager
def started(shell: str, program: str, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A program of a pod, ended at the end of the test."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    command = [shutil.which(shell) or shell, "-c", program, "overspan", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            # The wrapper's own children are in groups of their own where the shell has job control.
            if process.poll() is None:
                process.kill()


def run(shell: str, program: str, *words: str, **variables: str) -> tuple[int, str, str]:
    with started(shell, program, *words, **variables) as process:
        output, error = process.communicate(timeout=DEADLINE)
        return process.returncode, output, error


def work(setup: str, text: str, *words: str) -> list[str]:
    return Work(setup, text, "trainer", words).arguments()


@pytest.mark.parametrize("shell", SHELLS)
def test_setup_and_run_are_one_program_with_the_exit_code_of_run(shell: str, tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    assert run(shell, program, *work("echo setup", 'echo "$0 $1"; exit 7', "x y")) == (7, "setup\ntrainer x y\n", "")
    assert run(shell, program, *work("", "kill -9 $$")) == (137, "", "")
    assert run(shell, program, *work("", "", "/bin/sh", "-c", "exit 3"))[0] == 3
    assert run(shell, program, *work("", "nothing-of-that-name"))[0] == 127
    assert not (tmp_path / "message").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_that_does_not_end_is_killed_where_the_pod_lives_longer(shell: str, tmp_path: Path) -> None:
    text = "trap 'echo caught' TERM; env | grep KILL_AFTER; echo begun; while :; do sleep 0.02; done"
    with started(shell, move(WORK, tmp_path), *work("", text), OVERSPAN_KILL_AFTER="1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(DEADLINE) == 137
        assert process.stdout.read() == "caught\n"


def script(text: str, here: Path, /, **place: str) -> list[str]:
    """The arguments for a batch script that works in a folder."""
    where = ScriptContext(**{"folder": str(here), "umask": "027", **place})
    moved = Work("", "", "batch", ("/bin/sh", "-c", text), place=where)
    return [move(word, here) for word in moved.arguments()]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("place", "files", "printed"),
    [
        ({}, {}, ("out\nerr\n", "")),
        ({"error": LOG}, {}, ("out\n", "err\n")),
        ({"output": "o"}, {"o": "out\nerr\n"}, ("", "")),
        ({"output": "o", "error": "e"}, {"o": "out\n", "e": "err\n"}, ("", "")),
        ({"output": "o", "error": LOG}, {"o": "out\n"}, ("", "err\n")),
        ({"error": "e"}, {"e": "err\n"}, ("out\n", "")),
        ({"output": "/dev/null"}, {}, ("", "")),
        ({"output": "old"}, {"old": "out\nerr\n"}, ("", "")),
        ({"output": "old", "mode": "append "}, {"old": "before\nout\nerr\n"}, ("", "")),
    ],
)
def test_a_batch_script_writes_its_files_from_its_folder(
    shell: str, place: dict[str, str], files: dict[str, str], printed: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "old").write_text("before\n")
    paths = {
        key: str(tmp_path / value) if len(value) in (1, 3) and value != LOG else value for key, value in place.items()
    }
    text = "pwd >where; umask >mask; echo out; echo err >&2; exit 4"
    code = run(shell, move(WORK, tmp_path), *script(text, tmp_path, **paths), OVERSPAN_NODE_INDEX="0")
    assert code == (4, *printed)
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    assert int((tmp_path / "mask").read_text(), 8) == 0o027
    assert all((tmp_path / name).stat().st_mode & 0o777 == 0o640 for name in files if name != "old")
    assert not (tmp_path / "message").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_batch_script_reads_its_input_on_its_first_node_alone(shell: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("given\n")
    files = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    for node, told in (("1", "nothing\n"), ("0", "")):
        words = script("read line || line=nothing; echo $line", tmp_path, **files)
        program = f'exec {shell} -c "$@" </dev/null'
        assert run("sh", program, move(WORK, tmp_path), "overspan", *words, OVERSPAN_NODE_INDEX=node) == (0, told, "")
    assert (tmp_path / "out").read_text() == "given\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"folder": "/nonexistent/x"}, "cannot enter /nonexistent/x, its working directory: there is none in the pod"),
        ({"output": "/nonexistent/x"}, "cannot open the output file /nonexistent/x: there is no folder /nonexistent"),
        ({"output": "/usr/bin"}, "cannot open the output file /usr/bin: the user of the image (uid="),
        ({"input": "/nonexistent/x"}, "cannot open the input file /nonexistent/x in the pod"),
    ],
)
def test_what_a_batch_script_cannot_have_is_said_and_nothing_runs(
    shell: str, place: dict[str, str], words: str, tmp_path: Path
) -> None:
    code, output, error = run(
        shell, move(WORK, tmp_path), *script("echo ran", tmp_path, **place), OVERSPAN_NODE_INDEX="0"
    )
    assert (code, output) == (1, "") and error.startswith(f"span: error: {words}")
    assert (tmp_path / "message").read_text() == f"not started: {error.removeprefix('span: error: ')}"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_with_the_job_s_number_may_be_made_a_little_later(shell: str, tmp_path: Path) -> None:
    place = {"output": str(tmp_path / "8" / "out"), "mode": "await"}
    with started(
        shell, move(WORK, tmp_path), *script("echo out", tmp_path, **place), OVERSPAN_NODE_INDEX="0"
    ) as process:
        (tmp_path / "8").mkdir()
        assert process.communicate(timeout=DEADLINE) == ("", "")
    assert (tmp_path / "8" / "out").read_text() == "out\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_setup_that_fails_says_so_and_nothing_runs(shell: str, tmp_path: Path) -> None:
    assert run(shell, move(WORK, tmp_path), *work("exit 5", "echo ran")) == (5, "", "")
    assert (tmp_path / "message").read_text() == "setup failed\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["TERM", "USR1", "INT"])
def test_signals_reach_the_task_and_its_end_is_the_pod_s(shell: str, name: str, tmp_path: Path) -> None:
    if (shell, name) == ("dash", "INT"):
        pytest.skip("a shell without job control has what it starts ignore INT (POSIX, 2.11)")
    text = f"trap 'echo heard; exit 9' {name}; echo ready; while :; do sleep 0.02; done"
    with started(shell, move(WORK, tmp_path), *work("", text)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        output, error = process.communicate(timeout=DEADLINE)
    assert (process.returncode, output, error) == (9, "heard\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_without_a_trap_ends_at_once(shell: str, tmp_path: Path) -> None:
    with started(shell, move(WORK, tmp_path), *work("", "echo ready; exec sleep 60")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a process namespace")
def test_the_end_of_a_container_reaches_every_process_of_it(shell: str, tmp_path: Path) -> None:
    text = """\
    trap 'wait; echo parent; exit 4' TERM
    sh -c 'trap "echo child; exit 0" TERM; echo ready; while :; do sleep 0.02; done' &
    wait
    """
    program = f'exec unshare --pid --fork --mount-proc --kill-child {shell} -c "$@"'
    with started("sh", program, move(WORK, tmp_path), "overspan", *work("", text)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
        os.kill(int(first), signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, output.split()) == (4, ["child", "parent"])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_notice_is_in_the_run_directory(shell: str, tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "notice").write_text("soon\n")
    show = Work("", 'cat "$OVERSPAN_RUN_DIR/notice"', "t").arguments()
    folder = str(tmp_path / "run")
    assert run(shell, move(WORK, tmp_path), *show, OVERSPAN_RUN_DIR=folder)[:2] == (0, "soon\n")
    # An image without ln, for which the pod's own folder has to do.
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "cat").symlink_to(shutil.which("cat") or "/bin/cat")
    (tmp_path / "run" / "notice").unlink()
    assert run(shell, move(WORK, tmp_path), *show, OVERSPAN_RUN_DIR=folder, PATH=str(bare))[:2] == (0, "soon\n")


def test_files_below_the_home_are_links(tmp_path: Path) -> None:
    home, source = tmp_path / "home", tmp_path / "source"
    home.mkdir()
    source.write_text("data")
    words = Work("", 'cat "$HOME/a/b"', "t", (), ((str(source), "a/b"), (str(source), "c"))).arguments()
    for _ in range(2):
        assert run("sh", move(WORK, tmp_path), *words, HOME=str(home))[:2] == (0, "data")
    assert (home / "c").is_symlink()


def behind_barrier(text: str, domain: str = "") -> list[str]:
    return Work("", text, "trainer", waits=True, domain=domain).arguments()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("file", ["pod/go", "run/.go"])
def test_the_barrier_opens_by_its_mark(shell: str, file: str, tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    mark = tmp_path / file
    (tmp_path / "pod" / "go").write_text("")
    with started(shell, program, *behind_barrier("trap 'exit 4' TERM; echo ran; kill $$")) as process:
        assert process.stdout is not None
        assert not select.select([process.stdout], [], [], 0.3)[0]
        assert process.poll() is None
        # The kubelet writes no end of line.
        mark.write_text("1700000000.0")
        assert process.communicate(timeout=DEADLINE) == ("ran\n", "")
        assert process.returncode == 4
    assert (tmp_path / "message").read_text() == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_end_at_the_barrier_says_that_nothing_ran(
    shell: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with started(shell, move(WORK, tmp_path), *behind_barrier("echo ran")) as process:
        wait_for_trap(process.pid)
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE) == ("", "")
        assert process.returncode == code
    assert (tmp_path / "message").read_text() == "ended before its start\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_where_nothing_can_be_said_the_program_runs_all_the_same(shell: str, tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    (tmp_path / "message").mkdir()
    (tmp_path / "pod" / "go").write_text("1700000000.0")
    assert run(shell, program, *behind_barrier("echo ran; exit 3")) == (3, "ran\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_killed_after_its_start_has_begun(shell: str, tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    (tmp_path / "pod" / "go").write_text("1700000000.0")
    assert run(shell, program, *behind_barrier("kill -9 $$"))[0] == 137
    assert (tmp_path / "message").read_text() == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_who_is_to_end_already_does_not_start(shell: str, tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    (tmp_path / "pod" / "go").write_text("1700000000.0 1700000001.0")
    assert run(shell, program, *behind_barrier("echo ran"))[:2] == (143, "")
    assert (tmp_path / "message").read_text() == "ended before its start\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_its_own_name_is_known_when_the_program_starts(shell: str, tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    (tmp_path / "pod" / "go").write_text("1700000000.0")
    tools, asked = tmp_path / "bin", tmp_path / "asked"
    tools.mkdir()
    (tools / "getent").write_text(f'#!/bin/sh\necho "$*" >>{asked}\n[ "$(wc -l <{asked})" -ge 3 ]\n')
    (tools / "getent").chmod(0o755)
    words = behind_barrier('echo "$(wc -l <"$ASKED")"', "learn")
    path = f"{tools}:{os.environ['PATH']}"
    code, output, _ = run(shell, program, *words, PATH=path, OVERSPAN_HOST="trainer-0.learn", ASKED=str(asked))
    assert (code, output.strip()) == (0, "3")
    assert set(asked.read_text().splitlines()) == {"hosts trainer-0.learn"}


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_waits_at_the_barrier_without_other_programs(tmp_path: Path) -> None:
    program = move(WORK, tmp_path)
    with started("bash", program, *behind_barrier("echo ran"), PATH="/nonexistent") as process:
        wait_for_trap(process.pid)
        begun, used = time.monotonic(), used_seconds(process.pid)
        time.sleep(1)
        # Whoever looks all the time uses all of it.
        assert used_seconds(process.pid) - used < 0.2 * (time.monotonic() - begun)
        (tmp_path / "pod" / "go").write_text("1700000000.0")
        assert process.communicate(timeout=DEADLINE)[0] == "ran\n"


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_the_barrier_is_one_read_that_the_daemon_ends(tmp_path: Path) -> None:
    # As in busybox, whose `read` knows whole seconds; and here it knows no end of them.
    read = """() { case "$2$3" in
      -t0.*) return 2 ;; -t*) builtin read -r -t 999 "$4" ;; *) builtin read "$@" ;;
    esac; }"""
    program, tools, slept = move(WORK, tmp_path), tmp_path / "bin", tmp_path / "slept"
    tools.mkdir()
    (tools / "sleep").write_text(f"#!/bin/sh\n: >{slept}\n")
    (tools / "sleep").chmod(0o755)
    variables = {"PATH": f"{tools}:{os.environ['PATH']}", "BASH_FUNC_read%%": read}
    with started("bash", program, *behind_barrier("echo ran"), **variables) as process:
        wait_for_trap(process.pid)
        assert process.stdout is not None
        assert not select.select([process.stdout], [], [], 0.3)[0]
        subprocess.run(["sh", "-c", move(OPEN, tmp_path), "overspan", "1700000000.0"], check=True, timeout=DEADLINE)
        assert process.communicate(timeout=DEADLINE) == ("ran\n", "")
    assert not slept.exists()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".go", "notice"]


@pytest.mark.parametrize("shell", SHELLS)
def test_who_rings_where_nobody_waits_is_not_kept(shell: str, tmp_path: Path) -> None:
    opening = move(OPEN, tmp_path)
    os.mkfifo(tmp_path / "run" / ".bell")
    subprocess.run([shell, "-c", opening, "overspan", "1700000000.0"], check=True, timeout=DEADLINE)
    assert (tmp_path / "run" / ".go").read_text() == "1700000000.0\n"


def used_seconds(pid: int) -> float:
    """Processor time of a process (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("text", "code"), [("printf half >&2", 0), ("echo out; exit 3", 3), ("kill -9 $$", 137)])
def test_an_end_is_told_in_the_log_and_left_out_of_it_byte_by_byte(
    shell: str, text: str, code: int, tmp_path: Path
) -> None:
    program, mark = move(WORK, tmp_path), make_mark("inst-7-0", "trainer", 0, 1, 0)
    plain = run(shell, program, *work("", text))
    found = run(shell, program, *work("", text), OVERSPAN_END_MARK=mark)
    assert plain[0] == found[0] == code
    told = f"{plain[2]}\036overspan-end {mark} {code}\n"
    assert found[1:] == (plain[1], told)
    assert leave_out(found[2].encode(), mark) == plain[2].encode()
    assert leave_out(found[2].encode(), "another") == found[2].encode()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_end_of_a_program_that_heard_term_is_told_by_its_pod_alone(shell: str, tmp_path: Path) -> None:
    text = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    with started(shell, move(WORK, tmp_path), *work("", text), OVERSPAN_END_MARK="m") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.communicate(timeout=DEADLINE) == ("", "")
    assert process.returncode == 0


def test_the_program_does_not_see_its_mark(tmp_path: Path) -> None:
    shown = run("sh", move(WORK, tmp_path), *work("", "env; echo $OVERSPAN_END_MARK"), OVERSPAN_END_MARK="hidden")
    assert "hidden" not in shown[1] and "OVERSPAN_END" not in shown[1]


def wait_for_trap(pid: int) -> None:
    """Until the program has its TERM trap."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        if caught and int(caught[1], 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.005)
    raise AssertionError("no trap")


def test_files_are_unpacked_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    subprocess.run(["tar", "-czf", "a.tgz", "code"], cwd=tmp_path, check=True)
    target = tmp_path / "files" / "0"
    assert run("sh", move(UNPACK, tmp_path), str(tmp_path / "a.tgz"), str(target))[0] == 0
    assert (target / "code" / "a.py").read_text() == "1"


def test_an_image_without_tar_says_so(tmp_path: Path) -> None:
    code, _, error = run("sh", move(UNPACK, tmp_path), "a", "b", PATH="/nonexistent")
    assert code == 1
    assert "no tar" in error
    assert "no tar" in (tmp_path / "message").read_text()
