"""What a terminal can show, from its environment: colours, characters, and how often it is worth painting.

Imports no Textual: some of it has to be known before Textual is imported.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

SSH_FRAMES = "20"
"""Frames a second over ssh: no eye misses the others, and a slow line does."""
_PLAIN = ("ansi", "cons25", "linux", "vt100", "vt102", "vt220", "vt320")
"""Terminals whose fonts have no more than ASCII for certain; the console of Linux lacks the triangles of a tree."""
_TRUE_COLOURS = ("alacritty", "foot", "foot-direct", "ghostty", "kitty", "wezterm", "xterm-ghostty", "xterm-kitty")
"""Terminals with all colours whose name does not say so; ssh carries no COLORTERM."""
_PLAIN_LOCALES = ("C", "POSIX")
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
_MONOCHROME = ("vt100", "vt102", "vt220", "vt320")


class Colours(enum.Enum):
    """How many colours may be used."""

    NONE = "none"
    SIXTEEN = "sixteen"
    MANY = "many"


class TerminalTraits(NamedTuple):
    """What a terminal can show."""

    colours: Colours = Colours.MANY
    light: bool = False
    """Its background is a light one, as far as it tells."""
    ascii: bool = False
    basic: bool = False
    """It is not to be asked what it can do: it may print the question."""


def read_traits(environment: Mapping[str, str], encoding: str) -> TerminalTraits:
    """The traits of the terminal that these variables and the encoding of its stream describe."""
    name = environment.get("TERM", "")
    family = name.partition("-")[0]
    utf8 = encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")
    return TerminalTraits(
        _find_colours(name, environment),
        environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15"),
        family in _PLAIN or not utf8 or _is_plain_locale(environment),
        family in _PLAIN,
    )


def _is_plain_locale(environment: Mapping[str, str]) -> bool:
    """Whether the locale is C or POSIX by name, which is ASCII for every other program.

    Python writes UTF-8 there, and puts LC_CTYPE in for that (PEP 538), so that one does not count against LANG.
    """
    names = [environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if names[1] in _COERCED and names[2] in _PLAIN_LOCALES:
        del names[1]
    return next(filter(None, names), "") in _PLAIN_LOCALES


def _find_colours(name: str, environment: Mapping[str, str]) -> Colours:
    # no-color.org: present, and not empty.
    if environment.get("NO_COLOR") or name in _MONOCHROME:
        return Colours.NONE
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit") or name in _TRUE_COLOURS:
        return Colours.MANY
    forced = environment.get("TEXTUAL_COLOR_SYSTEM", "") in ("256", "truecolor")
    return Colours.MANY if forced or name.endswith("256color") else Colours.SIXTEEN


def prepare_environment(environment: MutableMapping[str, str]) -> None:
    """Set what Textual reads when it is imported: how often it paints, and colours that it would not find."""
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        environment.setdefault("TEXTUAL_FPS", SSH_FRAMES)
    if environment.get("TERM") in _TRUE_COLOURS:
        environment.setdefault("TEXTUAL_COLOR_SYSTEM", "truecolor")
