"""The section `top` of the configuration: what `span top` reads of it, value by value.

The daemon takes no notice of it: a mistake in the looks of a terminal must keep no queue from running. What is wrong
becomes a sentence with its place, and the rest counts. Nothing here imports pydantic, and YAML only where a file can
have such a section, because a terminal waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from overspan.bridge.model.errors import OverspanError, Place
from overspan.bridge.validation.diagnostics import nearest
from overspan.bridge.validation.yaml_nodes import Items, Node, Scalar, Table, describe, is_null, plain

MAX_BYTES = 1 << 20
"""The largest configuration file that is read, in bytes."""
SECTION = "top"


class WrittenText(NamedTuple):
    """A text of a file, and where it stands."""

    text: str
    place: Place


class TopSettings(NamedTuple):
    """What the files say; empty is what nothing says."""

    theme: WrittenText | None = None
    filter: str = ""
    columns: tuple[WrittenText, ...] = ()
    sort: WrittenText | None = None
    read_only: bool = False
    ascii: bool = False
    mouse: bool = True
    keymap: Mapping[str, WrittenText] = {}
    """The keys of actions, by the actions' ids; the place is that of the id."""
    troubles: tuple[str, ...] = ()
    """A sentence for each value that could not be used, with its place."""


class _Wrong(Exception):
    """A value that cannot be used."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


def read_top_settings(user_file: str, site_file: str) -> TopSettings:
    """Read both files; the user's stands above the site's, except for keys that the site marks `final`."""
    troubles: list[str] = []
    values: dict[str, Any] = {}
    site = _read_file(site_file, troubles)
    user = _read_file(user_file, troubles)
    final = _list_final(site)
    for table, fixed in ((site, frozenset[str]()), (user, final)):
        for name, value in _read_section(table, fixed, troubles):
            values[name] = {**values.get(name, {}), **value} if name == "keymap" else value
    return TopSettings(**values, troubles=tuple(troubles))


def _read_file(file: str, troubles: list[str]) -> Table | None:
    """The document of a file; None where it has no section of ours or cannot be read."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        troubles.append(f"{file}: cannot read the configuration: {error.strerror}")
        return None
    if SECTION.encode() not in data:
        return None
    from overspan.bridge.validation.yaml_documents import read_table

    try:
        return read_table(data.decode("utf-8", "replace"), file)
    except OverspanError as error:
        where = f"{error.place}: " if error.place else ""
        troubles.append(f"{where}{error.message.splitlines()[0]}; nothing of this file counts")
        return None


def _list_final(site: Table | None) -> frozenset[str]:
    """The keys of the section that the site has fixed; all of them where the section itself is."""
    listed = plain(site).get("final") if site is not None else None
    words = [str(word) for word in listed] if isinstance(listed, list) else []
    if SECTION in words:
        return frozenset(_READERS)
    return frozenset(word.split(".")[1] for word in words if word.startswith(f"{SECTION}."))


def _read_section(table: Table | None, fixed: frozenset[str], troubles: list[str]) -> Iterator[tuple[str, Any]]:
    section = table.get(SECTION) if table is not None else None
    if section is None:
        return
    if not isinstance(section, Table):
        troubles.append(f"{section.place}: top: a mapping is wanted here, not {describe(section)}")
        return
    for key, entry in section.entries.items():
        if is_null(entry.node):
            continue
        try:
            _check_key(key, entry.place, fixed)
            yield key, _READERS[key](entry.node, troubles)
        except _Wrong as wrong:
            troubles.append(f"{wrong.place}: top.{key}: {wrong.message}")
            if key == "read_only" and key not in fixed:
                # Who wrote it meant to forbid something.
                yield key, True


def _check_key(key: str, place: Place, fixed: frozenset[str]) -> None:
    if key not in _READERS:
        raise _Wrong(place, f"there is no such key{nearest(key, _READERS)}; known keys: {', '.join(sorted(_READERS))}")
    if key in fixed:
        raise _Wrong(place, "this is fixed by the site; remove it from your file")


def _read_text(node: Node, troubles: list[str]) -> WrittenText:
    if not isinstance(node, Scalar) or node.value is None:
        raise _Wrong(node.place, f"text is wanted here, not {describe(node)}")
    return WrittenText(node.text, node.place)


def _read_words(node: Node, troubles: list[str]) -> str:
    return _read_text(node, troubles).text


def _read_switch(node: Node, troubles: list[str]) -> bool:
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    raise _Wrong(node.place, f"true or false is wanted here, not {describe(node)}")


def _read_list(node: Node, troubles: list[str]) -> tuple[WrittenText, ...]:
    """A list of texts, or one text with commas."""
    if isinstance(node, Items):
        return tuple(_read_text(item, troubles) for item in node.items)
    whole = _read_text(node, troubles)
    return tuple(WrittenText(word.strip(), whole.place) for word in whole.text.split(",") if word.strip())


def _read_keymap(node: Node, troubles: list[str]) -> dict[str, WrittenText]:
    """Ids and keys; a wrong one leaves the others alone."""
    if not isinstance(node, Table):
        raise _Wrong(node.place, f"a mapping of actions to keys is wanted here, not {describe(node)}")
    found = {}
    for name, entry in node.entries.items():
        try:
            keys = ",".join(word.text for word in _read_list(entry.node, troubles))
            found[name] = WrittenText(keys, entry.place)
        except _Wrong as wrong:
            troubles.append(f"{wrong.place}: top.keymap.{name}: {wrong.message}")
    return found


_READERS: dict[str, Callable[[Any, list[str]], Any]] = {
    "theme": _read_text,
    "filter": _read_words,
    "columns": _read_list,
    "sort": _read_text,
    "read_only": _read_switch,
    "ascii": _read_switch,
    "mouse": _read_switch,
    "keymap": _read_keymap,
}
"""By key, how its value is read."""
KEYS = tuple(_READERS)
