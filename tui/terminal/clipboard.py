"""The terminal's clipboard: the sequence that sets it (OSC 52), wrapped where a multiplexer would keep it. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping

MOST = 74_994
"""Bytes of base64 that terminals take in one sequence (xterm's bound, and that of others)."""
_CHUNK = 76
"""GNU screen passes on so much of a string at a time."""


def write_clipboard(text: str, environment: Mapping[str, str]) -> str:
    """What sets the clipboard of the user's own terminal; nothing where the text is too long for it.

    tmux sets it itself (`set-clipboard on`) or passes it on (`allow-passthrough on`), whichever its user has chosen.
    GNU screen passes on what stands in a DCS, in pieces.
    """
    data = base64.b64encode(text.encode("utf-8", "replace")).decode()
    if len(data) > MOST:
        return ""
    plain = f"\x1b]52;c;{data}\x07"
    if environment.get("TMUX"):
        doubled = plain.replace("\x1b", "\x1b\x1b")
        return f"{plain}\x1bPtmux;{doubled}\x1b\\"
    if environment.get("STY"):
        pieces = [plain[place : place + _CHUNK] for place in range(0, len(plain), _CHUNK)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return plain
