"""The sequence that sets a terminal's clipboard, through multiplexers too."""

from __future__ import annotations

import base64
import re

from hypothesis import given
from hypothesis import strategies as st

from overspan.tui.terminal.clipboard import MOST, write_clipboard


def decode(sequence: str) -> str:
    [data] = re.findall(r"\x1b]52;c;([A-Za-z0-9+/=]*)\x07", sequence)
    return base64.b64decode(data).decode()


@given(st.text(max_size=300))
def test_a_terminal_reads_the_text_again(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    plain = write_clipboard(text, {})
    assert decode(plain) == clean
    # GNU screen puts the pieces together again, each in a string of its own.
    pieces = re.findall(r"\x1bP(.*?)\x1b\\", write_clipboard(text, {"STY": "1.pts"}), re.DOTALL)
    assert "".join(pieces) == plain and all(len(piece) <= 76 for piece in pieces)


def test_tmux_sets_it_or_passes_it_on() -> None:
    plain = write_clipboard("42", {})
    both = write_clipboard("42", {"TMUX": "/tmp/tmux,1,0"})
    assert both == plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def test_what_no_terminal_takes_is_not_sent() -> None:
    assert write_clipboard("x" * (MOST // 4 * 3), {})
    assert write_clipboard("x" * MOST, {}) == ""
