"""The keys that a configuration gives to actions, checked against the table of keys.

A key that is no key, an action that there is not and two actions on one key are each told in one sentence with the
place in the file; that action keeps its keys, and the rest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from textual.keys import KEY_NAME_REPLACEMENTS, REPLACED_KEYS, Keys, key_to_character

from overspan.bridge.config.top_settings import WrittenText
from overspan.bridge.validation.diagnostics import nearest
from overspan.tui.keyboard.keys import KEYS, TOGETHER, KeyAction

_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
_NAMED = frozenset(key.value.rpartition("+")[2] for key in Keys if not key.value.startswith("<"))
"""Keys without a character: `up`, `f5`, `pagedown`."""
_SHORT = {"esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "ins": "insert"}
_FIXED = {"ctrl+c": "app.interrupt", "tab": "the next pane", "shift+tab": "the pane before"}
"""Keys that cannot be given away."""


class ReadKeymap(NamedTuple):
    """The keys by action, as Textual has them, and a sentence for each entry that does not count."""

    keys: Mapping[str, str]
    troubles: tuple[str, ...] = ()


def name_key(text: str) -> str | None:
    """The name that Textual has for a key as people write it: `ctrl+k`, `?`, `F5`, `esc`; None where it is no key."""
    *modifiers, key = text.strip().split("+") if text.strip() not in ("+", "") else [text.strip()]
    modifiers = [modifier.lower() for modifier in modifiers]
    if len(key) == 1 and "ctrl" not in modifiers and "shift" in modifiers and key.isalpha():
        modifiers.remove("shift")
        key = key.upper()
    elif len(key) == 1:
        key = _name_character(key.lower() if "ctrl" in modifiers else key) if key.isprintable() else ""
    elif key:
        key = _SHORT.get(key.lower(), key.lower())
        key = KEY_NAME_REPLACEMENTS.get(key, key)
        if key not in _NAMED and key not in REPLACED_KEYS and key_to_character(key) is None:
            return None
    if not key or any(modifier not in _MODIFIERS for modifier in modifiers):
        return None
    return "+".join([*sorted(set(modifiers)), key])


def _name_character(character: str) -> str:
    if character.isalnum():
        return character
    import unicodedata

    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


def read_keymap(written: Mapping[str, WrittenText], table: Sequence[KeyAction] = KEYS) -> ReadKeymap:
    """Check a configuration's keys against the table."""
    troubles: list[str] = []
    wanted = dict(_read_entries(written, table, troubles))
    # A refusal gives an action its own keys back, which another entry may have taken meanwhile.
    while clash := next(
        (found for found in find_clashes(wanted, table) if {found[1].id, found[2].id} & {*wanted}), None
    ):
        key, first, second = clash
        loser, winner = (second, first) if second.id in wanted else (first, second)
        del wanted[loser.id]
        troubles.append(
            f"{written[loser.id].place}: top.keymap.{loser.id}: {show_key(key)} is the key of {winner.id} too;"
            f" {loser.id} keeps {show_keys(loser.keys)}"
        )
    return ReadKeymap(wanted, tuple(troubles))


def _read_entries(
    written: Mapping[str, WrittenText], table: Sequence[KeyAction], troubles: list[str]
) -> Iterator[tuple[str, str]]:
    ids = [action.id for action in table]
    for name, entry in written.items():
        keys = [(word, name_key(word)) for word in entry.text.split(",")]
        wrong = next((word for word, key in keys if key is None), None)
        fixed = next((key for _, key in keys if key in _FIXED), None)
        if name not in ids:
            near = nearest(name, ids) or nearest(name.rpartition(".")[2], [each.rpartition(".")[2] for each in ids])
            troubles.append(f"{entry.place}: top.keymap: there is no action {name!r}{near}")
        elif wrong is not None:
            troubles.append(f"{entry.place}: top.keymap.{name}: {wrong!r} is no key; write such as ctrl+k, f5 or G")
        elif fixed is not None:
            troubles.append(f"{entry.place}: top.keymap.{name}: {fixed!r} stays with {_FIXED[fixed]}")
        else:
            yield name, ",".join(str(key) for _, key in keys)


def find_clashes(
    keymap: Mapping[str, str], table: Sequence[KeyAction] = KEYS
) -> Iterator[tuple[str, KeyAction, KeyAction]]:
    """The keys that two actions have which count at the same time, with both; the one lower in the table is second."""
    for scopes in TOGETHER:
        taken: dict[str, KeyAction] = {}
        for action in table:
            if action.scope not in scopes:
                continue
            for key in keymap.get(action.id, action.keys).split(","):
                other = taken.setdefault(key, action)
                if other is not action and not (other.closes and action.closes):
                    yield key, other, action


def show_key(key: str, ascii_only: bool = False) -> str:
    """A key as people write it: `?` for question_mark, `^k` for ctrl+k."""
    *modifiers, name = key.split("+")
    shown = _SHOWN_ASCII.get(name) if ascii_only else _SHOWN.get(name)
    shown = shown or key_to_character(REPLACED_KEYS.get(name, name)) or name
    if shown[0] == "f" and shown[1:].isdigit():
        shown = shown.upper()
    if modifiers == ["ctrl"]:
        return f"^{shown}"
    return "+".join([*modifiers, shown])


def show_keys(keys: str, ascii_only: bool = False) -> str:
    """The keys of an action, with blanks between them."""
    return " ".join(show_key(key, ascii_only) for key in keys.split(","))


_SHOWN_ASCII = {"escape": "Esc", "enter": "Enter", "pageup": "PgUp", "pagedown": "PgDn", "space": "Space"} | {
    name: name.capitalize() for name in ("up", "down", "left", "right", "home", "end", "tab", "delete", "insert")
}
_SHOWN = _SHOWN_ASCII | {"up": "↑", "down": "↓", "left": "←", "right": "→"}
