"""Inputs whose cursor does not blink: a dialog in which nothing happens sends nothing."""

from __future__ import annotations

from textual.reactive import reactive
from textual.widgets import Input, TextArea


class TextInput(Input):
    """A line that is typed into."""

    cursor_blink = reactive(False, init=False)


class TextEditor(TextArea):
    """Lines that are typed into."""

    cursor_blink = reactive(False, init=False)
