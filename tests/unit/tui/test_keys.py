"""The table of keys, and what a configuration makes of it."""

from __future__ import annotations

import pytest
from textual.dom import DOMNode

from overspan.bridge.config.top_settings import WrittenText
from overspan.bridge.model.errors import Place
from overspan.tui.app import TopApp
from overspan.tui.keyboard.help import HelpScreen, list_help
from overspan.tui.keyboard.keymap import find_clashes, name_key, read_keymap, show_key
from overspan.tui.keyboard.keys import KEYS, SCOPES, TOGETHER, KeyAction, bind
from overspan.tui.keyboard.palette import Palette, list_view_commands
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.job_place import JobPlace
from overspan.tui.places.queue import QueuePlace
from overspan.tui.widgets.line_table import LineTable

OWNERS: dict[str, type[DOMNode]] = {
    "app": TopApp,
    "list": LineTable,
    "queue": QueuePlace,
    "job": JobPlace,
    "logs": LogScreen,
    "help": HelpScreen,
    "palette": Palette,
    **{f"{make.name_of_place}": make for make in TopApp.PLACES},
}
"""By scope, the widget whose methods its actions are; scopes of which each dialog has its own part are left out."""
TABLE = (
    KeyAction("app.quit", "q", "quit_top", "quit"),
    KeyAction("list.up", "up,k", "move(-1)", "up"),
    KeyAction("job.cancel", "c", "order('cancel')", "cancel"),
    KeyAction("job.describe", "d", "describe", "details"),
    KeyAction("logs.close", "q", "dismiss", "back"),
    KeyAction("logs.clear", "c", "clear", "clear"),
)


def write(**keys: str) -> dict[str, WrittenText]:
    """The entries of a keymap, each on a line of its own."""
    lines = enumerate(keys.items(), 3)
    return {name.replace("__", "."): WrittenText(text, Place("config.yaml", line, 5)) for line, (name, text) in lines}


def test_no_key_stands_for_two_actions() -> None:
    assert [(key, first.id, second.id) for key, first, second in find_clashes({})] == []


def test_every_action_has_an_id_of_its_own_in_a_known_scope() -> None:
    ids = [action.id for action in KEYS]
    assert len(ids) == len(set(ids))
    assert {action.scope for action in KEYS} <= set(SCOPES)
    assert {action.scope for action in KEYS} <= {scope for scopes in TOGETHER for scope in scopes}


@pytest.mark.parametrize("action", KEYS, ids=lambda action: action.id)
def test_every_action_is_a_method(action: KeyAction) -> None:
    if action.scope in OWNERS:
        name = action.action.partition("(")[0]
        target, _, method = name.rpartition(".")
        owners: dict[str, type[DOMNode]] = {"": OWNERS[action.scope], "app": TopApp, "screen": HelpScreen}
        owner = owners[target]
        assert callable(getattr(owner, f"action_{method}", None)), f"{owner.__name__}.action_{method}"


@pytest.mark.parametrize("action", KEYS, ids=lambda action: action.id)
def test_every_key_is_one_that_terminals_send(action: KeyAction) -> None:
    for key in action.keys.split(","):
        assert name_key(key) == key, key
        assert show_key(key).isprintable() and show_key(key, ascii_only=True).isascii()


@pytest.mark.parametrize("scopes", TOGETHER, ids="-".join)
def test_help_and_palette_have_every_action(scopes: tuple[str, ...]) -> None:
    wanted = [action for action in KEYS if action.scope in scopes]
    active = [(key, action.id) for action in wanted for key in action.keys.split(",")]
    shown = {entry.id for section in list_help(active) for entry in section.entries}
    assert shown == {action.id for action in wanted}
    offered = {command.words[0] for command in list_view_commands(active)}
    assert offered == {action.id for action in wanted} - {"app.palette"}


def test_bindings_carry_the_ids() -> None:
    assert {binding.id for scope in SCOPES for binding in bind(scope)} == {action.id for action in KEYS}


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl+k", "ctrl+k"),
        ("Ctrl+K", "ctrl+k"),
        ("?", "question_mark"),
        ("/", "slash"),
        ("slash", "slash"),
        ("F5", "f5"),
        ("G", "G"),
        ("shift+g", "G"),
        ("+", "plus"),
        ("esc", "escape"),
        ("PgUp", "pageup"),
        ("shift+down", "shift+down"),
        ("", None),
        ("ctlr+k", None),
        ("nonsense", None),
        ("\x1b", None),
        ("ctrl+", None),
    ],
)
def test_keys_as_people_write_them(written: str, key: str | None) -> None:
    assert name_key(written) == key


class TestKeymap:
    """What of a configuration's keys counts."""

    def test_keys_are_changed_by_id(self) -> None:
        found = read_keymap(write(job__cancel="ctrl+k,f8"), TABLE)
        assert found == ({"job.cancel": "ctrl+k,f8"}, ())

    def test_two_actions_can_change_their_keys(self) -> None:
        assert read_keymap(write(job__cancel="d", job__describe="c"), TABLE).troubles == ()

    @pytest.mark.parametrize(
        ("entries", "trouble"),
        [
            (
                {"job__cancle": "f8"},
                "config.yaml:3:5: top.keymap: there is no action 'job.cancle'; did you mean 'job.cancel'?",
            ),
            (
                {"queue__cancel": "f8"},
                "config.yaml:3:5: top.keymap: there is no action 'queue.cancel'; did you mean 'job.cancel'?",
            ),
            (
                {"job__cancel": "ctlr+k"},
                "config.yaml:3:5: top.keymap.job.cancel: 'ctlr+k' is no key; write such as ctrl+k, f5 or G",
            ),
            (
                {"job__cancel": "ctrl+c"},
                "config.yaml:3:5: top.keymap.job.cancel: 'ctrl+c' stays with app.interrupt",
            ),
            (
                {"job__cancel": "d"},
                "config.yaml:3:5: top.keymap.job.cancel: d is the key of job.describe too; job.cancel keeps c",
            ),
        ],
    )
    def test_what_cannot_be_is_told_once_and_leaves_the_rest_alone(self, entries: dict[str, str], trouble: str) -> None:
        found = read_keymap(write(**entries, list__up="ctrl+p"), TABLE)
        assert found == ({"list.up": "ctrl+p"}, (trouble,))

    def test_a_refusal_that_gives_a_key_back_makes_another_one(self) -> None:
        found = read_keymap(write(job__describe="c", job__cancel="k"), TABLE)
        assert found.keys == {}
        assert len(found.troubles) == 2

    def test_scopes_that_are_never_together_share_keys(self) -> None:
        assert read_keymap(write(job__describe="ctrl+x", logs__clear="ctrl+x"), TABLE).troubles == ()
