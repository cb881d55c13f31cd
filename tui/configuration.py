"""The configuration's section `top`, laid below the options of the command line."""

from __future__ import annotations

import difflib

from overspan.bridge.config.top_settings import TopSettings, WrittenText
from overspan.bridge.listings.fields import FIELDS
from overspan.tui.keyboard.keymap import read_keymap
from overspan.tui.options import TopOptions
from overspan.tui.terminal.themes import check_theme


def configure(options: TopOptions, settings: TopSettings) -> TopOptions:
    """The options with what the configuration says where the command line says nothing.

    What cannot be used becomes a trouble with its place, and the rest counts.
    """
    troubles = [*options.troubles, *settings.troubles]
    keymap = read_keymap(settings.keymap)
    troubles += keymap.troubles
    return options._replace(
        filter=options.filter or settings.filter,
        columns=options.columns or _choose_columns(settings.columns, troubles),
        sort=options.sort or _choose_sort(settings.sort, troubles),
        read_only=options.read_only or settings.read_only,
        ascii=options.ascii or settings.ascii,
        mouse=options.mouse and settings.mouse,
        theme=_choose_theme(options.theme, settings.theme, troubles),
        keymap={**keymap.keys, **options.keymap},
        troubles=tuple(troubles),
    )


def _choose_theme(given: str, written: WrittenText | None, troubles: list[str]) -> str:
    if given:
        if trouble := check_theme(given):
            troubles.append(f"--theme: {trouble}")
        else:
            return given
    if written is None:
        return ""
    if trouble := check_theme(written.text):
        troubles.append(f"{written.place}: top.theme: {trouble}")
        return ""
    return written.text


def _choose_columns(written: tuple[WrittenText, ...], troubles: list[str]) -> tuple[str, ...]:
    found = []
    for word in written:
        if trouble := check_field(word.text):
            troubles.append(f"{word.place}: top.columns: {trouble}")
        elif word.text not in found:
            found.append(word.text)
    return tuple(found)


def _choose_sort(written: WrittenText | None, troubles: list[str]) -> str:
    if written is None:
        return ""
    if trouble := check_field(written.text.removeprefix("-")):
        troubles.append(f"{written.place}: top.sort: {trouble}")
        return ""
    return written.text


def check_field(name: str) -> str:
    """What is wrong with a field's name, in one sentence; nothing where there is one of this name."""
    if name in FIELDS:
        return ""
    near = difflib.get_close_matches(name.lower(), FIELDS, 1)
    return f"there is no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
