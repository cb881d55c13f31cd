"""`span top` on terminals: how it ends, what it leaves there, sizes, colours, and a terminal that takes nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.top.screens import UNPAINTED, Screen
from tests.system.top.terminal import SPAN, PtyTerminal, open_terminal

READY = ("rl-math", ": go to  ? help")
"""What the screen shows of the simulated lab once it is painted whole."""
HIDDEN = ("SPAN_", "SLURM_", "SQUEUE_", "SSH_", "TEXTUAL", "COLORTERM", "COLORFGBG", "NO_COLOR", "LC_", "LANG", "TERM")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An ordinary terminal of 256 colours, and no configuration."""
    folder = tmp_path_factory.mktemp("home")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(HIDDEN)}
    own = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "none")}
    return {**kept, **own, "SPAN_SITE_CONFIG": str(folder / "site.yaml"), "SPAN_STATE_DIR": str(folder / "state")}


@pytest.fixture
def demo(environment: dict[str, str]) -> Iterator[PtyTerminal]:
    """The simulated lab on a terminal."""
    with open_terminal(["top", "--demo"], environment) as terminal:
        terminal.wait_for(*READY)
        yield terminal


def press(keys: str) -> Callable[[PtyTerminal], None]:
    """Somebody types."""
    return lambda terminal: terminal.press(keys)


def send(number: signal.Signals) -> Callable[[PtyTerminal], None]:
    """Somebody sends a signal."""
    return lambda terminal: terminal.process.send_signal(number)


def read_colours(screen: Screen) -> set[str]:
    """The kinds of colours that were asked for."""
    kinds = set()
    for look in screen.looks:
        kinds |= {f"{kind}" for place, kind in re.findall(r"\b([34]8);([25])(?=;)", look)}
        plain = re.sub(r"\b[34]8;(?:5;\d+|2;\d+;\d+;\d+)", "", look)
        kinds |= {"16" for word in plain.split(";") if word.isdigit() and int(word) >= 30 and int(word) not in (39, 49)}
    return kinds


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param(press("q"), 0, id="q"),
        pytest.param(press("\x03"), 0, id="ctrl+c"),
        pytest.param(send(signal.SIGTERM), 143, id="SIGTERM"),
        pytest.param(send(signal.SIGHUP), 129, id="SIGHUP"),
        pytest.param(send(signal.SIGINT), 130, id="SIGINT"),
    ],
)
def test_every_end_leaves_the_terminal_as_it_was(
    demo: PtyTerminal, end: Callable[[PtyTerminal], None], code: int
) -> None:
    assert not demo.restored and {1000, 1006, 1049, 2004} <= demo.screen.modes | {1049}
    assert 25 not in demo.screen.modes and not demo.screen.clean
    end(demo)
    assert demo.wait_end() == code
    demo.wait_shown(lambda screen: screen.clean, "it is not clean")
    assert demo.restored and demo.screen.unknown == []
    assert demo.read().strip() == "", "nothing is said at an ordinary end"


@pytest.mark.parametrize("leads", [True, False], ids=["with-SIGHUP", "without"])
def test_a_terminal_that_is_closed_ends_it(environment: dict[str, str], leads: bool) -> None:
    with open_terminal(["top", "--demo"], environment, leads=leads) as terminal:
        terminal.wait_for(*READY)
        terminal.hang_up()
        assert terminal.wait_end() == 129


def test_the_shell_is_a_key_away_and_fg_comes_back(environment: dict[str, str]) -> None:
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with open_terminal(shell, {**environment, "PS1": "prompt> ", "HISTFILE": "", "INPUTRC": "/dev/null"}) as terminal:
        terminal.wait_for("prompt>")
        terminal.press(f"bind 'set enable-bracketed-paste off'; stty -a | md5sum; {SPAN} top --demo\n")
        terminal.wait_for(*READY)
        terminal.press("\x1a")
        terminal.wait_for("Stopped", "prompt>")
        assert terminal.screen.clean
        terminal.press("stty -a | md5sum; fg\n")
        terminal.wait_for(*READY)
        assert 25 not in terminal.screen.modes
        terminal.press("j")
        terminal.press("q")
        terminal.wait_shown(lambda screen: screen.clean and "Stopped" in screen.text, "it is not clean")
        terminal.press("echo code $?; stty -a | md5sum; echo done\n")
        shown = terminal.wait_for("code 0", "\ndone")
        assert len(set(re.findall(r"^[0-9a-f]{32} ", shown, re.MULTILINE))) == 1, shown
        terminal.press("exit\n")
        assert terminal.wait_end() == 0


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_every_size_is_painted_whole(demo: PtyTerminal) -> None:
    for columns, lines in ((200, 60), (40, 10), (20, 5), (80, 24)):
        demo.resize(columns, lines)
        demo.wait_shown(lambda screen: UNPAINTED not in screen.text, f"{columns}x{lines} was not painted")
        demo.wait_shown(lambda screen: screen.rows[-1].endswith("help"), f"{columns}x{lines} has no hints")
    demo.wait_for(*READY)
    demo.press("d")
    demo.resize(140, 40)
    demo.wait_for("Timeline")
    assert demo.screen.unknown == []


def test_a_size_that_no_signal_tells_is_seen(environment: dict[str, str]) -> None:
    with open_terminal(["top", "--demo"], environment, leads=False) as terminal:
        terminal.wait_for(*READY)
        terminal.resize(100, 30)
        terminal.wait_shown(lambda screen: UNPAINTED not in screen.text, "100x30 was not painted")
        terminal.press("q")
        assert terminal.wait_end() == 0


# --- what kinds of terminals there are --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "colours", "ascii_only"),
    [
        pytest.param({}, {"5"}, False, id="256"),
        pytest.param({"COLORTERM": "truecolor"}, {"2"}, False, id="true"),
        pytest.param({"TERM": "xterm-kitty"}, {"2"}, False, id="kitty"),
        pytest.param({"TERM": "screen"}, {"16"}, False, id="screen"),
        pytest.param({"TERM": "linux"}, {"16"}, True, id="linux"),
        pytest.param({"TERM": "vt100"}, set(), True, id="vt100"),
        pytest.param({"NO_COLOR": "1"}, set(), False, id="NO_COLOR"),
        pytest.param({"NO_COLOR": "1", "COLORTERM": "truecolor"}, set(), False, id="NO_COLOR-true"),
        pytest.param({"LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"5"}, True, id="no-utf8"),
        pytest.param({"LANG": "C"}, {"5"}, True, id="LANG=C"),
        pytest.param({"LC_ALL": "C"}, {"5"}, True, id="LC_ALL=C"),
        pytest.param({"SSH_TTY": "/dev/pts/9", "SSH_CONNECTION": "a 1 b 2"}, {"5"}, False, id="ssh"),
    ],
)
def test_a_terminal_gets_no_more_than_it_can(
    environment: dict[str, str], own: dict[str, str], colours: set[str], ascii_only: bool
) -> None:
    with open_terminal(["top", "--demo"], {**environment, **own}) as terminal:
        terminal.wait_for(*READY)
        terminal.press("?")
        terminal.wait_for("Keys of this view")
        terminal.press("\x1b")
        # A letter right behind it would be Alt with that letter.
        terminal.wait_shown(lambda screen: "Keys of this view" not in screen.text, "help is still there")
        for keys, text in (("d", "Submitted"), ("4", "Nodes: "), ("1", "Submitted")):
            terminal.press(keys)
            terminal.wait_for(text)
        assert read_colours(terminal.screen) == colours
        assert terminal.read().isascii() is ascii_only
        assert bool(terminal.screen.questions) is (own.get("TERM") not in ("linux", "vt100"))
        terminal.press("\x03")
        assert terminal.wait_end() == 0
        terminal.wait_shown(lambda screen: screen.clean, "it is not clean")
        assert terminal.screen.unknown == []


def test_a_terminal_that_paints_frames_at_once_is_asked_to(demo: PtyTerminal) -> None:
    assert "\x1b[?2026$p" in demo.screen.questions and 2026 not in demo.screen.modes
    demo.press("\x1b[?2026;2$y")
    demo.press("4")
    demo.wait_for("Nodes:")
    demo.press("1")
    demo.wait_shown(lambda screen: 2026 in screen.asked - screen.modes, "frames have no ends")


def test_bytes_that_are_no_keys_do_no_harm(demo: PtyTerminal) -> None:
    # Latin-1, the focus, a size in pixels that nobody asked for, a click far outside, and what is pasted.
    demo.press(b"\xff\xfe\xe9\x1b[O\x1b[I\x1b[48;24;80;480;1280t\x1b[<0;999;999M\x1b[<0;999;999m\x1b[200~qqq\x1b[201~")
    demo.press("?")
    demo.wait_for("Keys of this view")
    # A click in cells, as before: on the name of a place.
    demo.press("\x1b")
    demo.wait_shown(lambda screen: "Keys of this view" not in screen.text, "help is still there")
    column = demo.screen.rows[0].index("Nodes") + 1
    demo.press(f"\x1b[<0;{column};1M\x1b[<0;{column};1m")
    demo.wait_for("Nodes: ")


@pytest.mark.parametrize(
    ("command", "own"),
    [
        pytest.param("{span} top --demo </dev/null", {}, id="no-input"),
        pytest.param("{span} top --demo <&-", {}, id="closed-input"),
        pytest.param("{span} top --demo | cat", {}, id="pipe"),
        pytest.param("{span} top --demo 2>said", {}, id="stderr-in-a-file"),
        pytest.param("{span} top --demo", {"TERM": "dumb"}, id="dumb"),
        pytest.param("TERM= {span} top --demo", {}, id="empty-TERM"),
        pytest.param("env -u TERM {span} top --demo", {}, id="no-TERM"),
    ],
)
def test_where_no_screen_can_be_there_is_a_sentence_and_nothing_else(
    environment: dict[str, str], tmp_path: Path, command: str, own: Mapping[str, str]
) -> None:
    script = f"cd {tmp_path}; {command.format(span=SPAN)}; echo code ${{PIPESTATUS[0]}}; cat said 2>/dev/null"
    with open_terminal(["/bin/bash", "-c", script], {**environment, **own}) as terminal:
        assert terminal.wait_end() in (0, 1)
        shown = terminal.wait_for("code 2", "span top --once")
        assert "error: " in shown and "Traceback" not in shown and "internal" not in shown
        assert terminal.screen.clean and terminal.restored and terminal.screen.unknown == []


def test_once_needs_no_terminal(environment: dict[str, str]) -> None:
    command = [SPAN, "top", "--demo", "--once"]
    done = subprocess.run(command, env={**environment, "TERM": "dumb"}, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0 and done.stderr == b""
    assert b"rl-math" in done.stdout and b"\x1b" not in done.stdout


# --- a terminal that takes nothing ------------------------------------------------------------------------------------


def test_a_terminal_that_takes_nothing_makes_nothing_grow(demo: PtyTerminal) -> None:
    demo.wait_quiet(0.2)
    demo.stop_reading()
    # Frames, until nobody takes them: then it stands.
    for _ in range(300):
        demo.press("4")
        demo.press("1")
    before = demo.memory
    for _ in range(300):
        demo.press("j")
    assert demo.memory - before < 8 << 10, "it collects what it cannot write"
    at = demo.written
    demo.go_on_reading()
    demo.wait_for(*READY, seconds=60)
    demo.wait_quiet(1.0)
    assert demo.written - at < 4 << 20
    demo.press("q")
    assert demo.wait_end() == 0
    demo.wait_shown(lambda screen: screen.clean, "it is not clean")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_takes_nothing_keeps_nobody_from_ending_it(demo: PtyTerminal, number: signal.Signals) -> None:
    demo.stop_reading()
    for _ in range(300):
        demo.press("4")
        demo.press("1")
    demo.process.send_signal(number)
    assert demo.process.wait(30) == 128 + number
    assert demo.restored


# --- a real daemon ----------------------------------------------------------------------------------------------------


def test_a_daemon_that_is_killed_leaves_the_frame_with_its_age(span: Span, environment: dict[str, str]) -> None:
    job = span.wrap("sleep 60", "--hold", "-J", "waiting-here")
    with open_terminal(["top"], {**environment, **own_of(span)}) as terminal:
        terminal.wait_for("waiting-here", "1 PD")
        os.kill(span.daemon, signal.SIGKILL)
        shown = terminal.wait_for("no daemon for <1m", "waiting-here")
        assert f" {job} " in shown
        terminal.press("q")
        assert terminal.wait_end() == 0
        terminal.wait_shown(lambda screen: screen.clean, "it is not clean")
        assert terminal.restored


HOSTILE = "[red]\x1b]0;owned\x07\x1b[?1003h\x9b2J\u202ec"
"""What would set the title, turn the mouse on, clear the screen, colour the rest, and turn it round."""
PRINTED = r"""printf 'out\033]52;c;b3duZWQ=\007\033[?1003h\302\2332J[red]end\n'; sleep 300"""


def test_what_a_job_is_called_and_prints_is_no_order_to_the_terminal(span: Span, environment: dict[str, str]) -> None:
    """TU11: in the list, the details with their tail of the log, the log, a dialog, a note and the texts."""
    span.wrap(PRINTED, "-J", HOSTILE, "--comment", HOSTILE)
    with open_terminal(["top", "--no-mouse"], {**environment, **own_of(span)}) as terminal:
        terminal.wait_for("[red]?]0;", "1 R")
        for key, text in (
            ("d", "Submitted"),
            ("o", "[red]end"),
            ("q", "Submitted"),
            ("b", "[Sent]"),
            ("q", "Submitted"),
            ("i", "1 watched"),
            ("c", "Cancel this job?"),
        ):
            terminal.press(key)
            terminal.wait_for(text)
        terminal.press("\r")
        terminal.wait_shown(lambda screen: "Cancel this job?" not in screen.text, "the dialog is still there")
        assert "[red]?]0;owned" in terminal.read()
        terminal.press("y")
        terminal.wait_shown(lambda screen: any(text[:3] == "52;" for text in screen.strings), "the id was not copied")
        # 22 is the shape of the mouse's pointer.
        strings = [text for text in terminal.screen.strings if not text.startswith("22;")]
        assert len(strings) == 1 and "b3duZWQ" not in strings[0] and 1003 not in terminal.screen.asked
        assert terminal.screen.unknown == []
        terminal.press("\x03")
        assert terminal.wait_end() == 0


def test_a_minute_without_news_writes_nothing(span: Span, environment: dict[str, str]) -> None:
    span.wrap("true", "--hold", "-J", "waiting-here")
    with open_terminal(["top"], {**environment, **own_of(span)}) as terminal:
        terminal.wait_for("waiting-here", "1 PD")
        terminal.wait_quiet(2.0)
        before = terminal.written
        terminal.wait_quiet(60.0)
        assert terminal.written == before


def own_of(span: Span) -> dict[str, str]:
    """What leads to the installation."""
    return {name: text for name, text in span.environment.items() if name.startswith("SPAN_")}
