"""Files of variables in dotenv's format, one `NAME=VALUE` a line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from overspan.bridge.client.submission import read_text
from overspan.bridge.model.errors import InvalidRequest, Place

_LINE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)\"""")
_USE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_env_file(file: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Read a file of variables; ${NAME} is an earlier one, or of the environment, but in single quotes.

    Blank lines and those that begin with `#` are comments. Raises InvalidRequest with the line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(file).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise InvalidRequest("this is no NAME=VALUE", remedy="write one a line", place=Place(file, number))
        found[match[1]] = _read_value(match[2], {**environment, **found}, Place(file, number))
    return found


def _read_value(written: str, known: Mapping[str, str], place: Place) -> str:
    if not written.startswith(("'", '"')):
        return _fill(re.sub(r"(^|[ \t]+)#.*", "", written).rstrip(), known)
    match = _QUOTED.match(written)
    if match is None or not re.fullmatch(r"[ \t]*(#.*)?", written[match.end() :]):
        raise InvalidRequest(
            "the quotes of this value do not end with its line", remedy=r"write \n for a line's end", place=place
        )
    if match[1] is not None:
        return match[1]
    return _fill(re.sub(r"\\(.)", lambda part: _ESCAPES.get(part[1], part[1]), match[2]), known)


def _fill(text: str, known: Mapping[str, str]) -> str:
    return _USE.sub(lambda use: known.get(use[1]) or use[2] or "", text)
