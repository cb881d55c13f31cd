"""docs/top.md: its keys, filters, configuration, options and places are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.docs import pages
from tests.unit.docs.pages import ROOT

from overspan.bridge.cli.jobs.top import OPTIONS
from overspan.bridge.config.top_settings import KEYS as SETTINGS
from overspan.bridge.config.top_settings import read_top_settings
from overspan.tui.configuration import configure
from overspan.tui.keyboard.help import list_help
from overspan.tui.keyboard.key_page import replace_keys
from overspan.tui.keyboard.keymap import find_clashes
from overspan.tui.keyboard.keys import KEYS, TOGETHER, find_keys
from overspan.tui.keyboard.palette import list_view_commands
from overspan.tui.options import TopOptions
from overspan.tui.queue.filters import read_filter

PAGE = ROOT / "docs" / "top.md"
TEXT = PAGE.read_text()


def test_the_tables_of_keys_are_those_of_the_code() -> None:
    assert replace_keys(TEXT) == TEXT, "the tables of keys are old: `make keys`"


def test_every_action_is_in_help_palette_and_docs() -> None:
    documented = {row[-1].strip("`") for row in pages.read_rows(TEXT) if re.fullmatch(r"`[a-z]+\.\w+`", row[-1])}
    helped, offered = set(), set()
    for scopes in TOGETHER:
        active = [(key, action.id) for action in KEYS if action.scope in scopes for key in action.keys.split(",")]
        helped |= {entry.id for section in list_help(active) for entry in section.entries}
        offered |= {command.words[0] for command in list_view_commands(active)}
    assert documented == helped == offered | {"app.palette"} == {action.id for action in KEYS}


def test_keys_in_the_text_are_keys_of_some_action() -> None:
    prose = TEXT[: TEXT.index("## Keys")]
    shown = {word for row in pages.read_rows(TEXT) for word in pages.read_words(row[0]) if len(row) == 3}
    for key in re.findall(r"`(\^?[A-Za-z/%&!\\\[\]{}?:]|ctrl\+.|shift\+→|→|Space)`", prose):
        if key not in ("!", "ctrl+k"):
            assert key.replace("ctrl+", "^") in shown, key


@pytest.mark.parametrize("words", pages.first_words(pages.read_section(PAGE, "Filters")))
def test_filters_can_be_read(words: str) -> None:
    found = read_filter(words)
    assert not found.trouble and found.tests


def test_the_configuration_counts_whole(tmp_path: Path) -> None:
    (block,) = (block for block in pages.read_blocks(PAGE) if block.language == "yaml")
    file = tmp_path / "config.yaml"
    file.write_text(block.text)
    settings = read_top_settings(str(file), str(tmp_path / "none.yaml"))
    chosen = configure(TopOptions(), settings)
    assert chosen.troubles == () and not list(find_clashes(chosen.keymap))
    assert chosen.theme == "light" and chosen.sort == "-priority" and not chosen.read_only
    assert all(re.search(rf"^  {key}:", block.text, re.MULTILINE) for key in SETTINGS)


def test_options_exist() -> None:
    known = {f"--{option.name}" for option in OPTIONS} | {f"-{option.letter}" for option in OPTIONS if option.letter}
    (block,) = (block.text for block in pages.read_blocks(PAGE) if block.language == "sh")
    text = re.sub(r"ssh -L|set -g|kill -9", "", pages.read_text(PAGE))
    used = set(re.findall(r"(?<=[ `])--?[a-zA-Z][\w-]*", text + block))
    assert used <= known, used - known


def test_places_have_their_keys() -> None:
    places = {key.keys: key.title for key in find_keys("app") if key.action.startswith("place(")}
    rows = pages.read_rows(pages.read_section(PAGE, "What it shows"))
    assert {row[0].strip("`"): row[1] for row in rows} == places
