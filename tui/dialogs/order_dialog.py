"""The dialog of an order: it names every target, takes a value or a signal where one is needed; its default is No."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.state_words import CODES
from overspan.tui.actions.orders import JobOrder, TargetChoice, word_states
from overspan.tui.actions.target import Target
from overspan.tui.dialogs.seen_dialog import SeenDialog
from overspan.tui.keyboard.keys import bind
from overspan.tui.queue.styled_text import cut_text
from overspan.tui.widgets.choice_list import ChoiceList
from overspan.tui.widgets.text_inputs import TextInput

_LONGEST_STATE = 32
"""Cells of a line for how many members are in which state."""


class GivenOrder(NamedTuple):
    """The user said yes, with this value."""

    value: Any = None


class OrderQuestion(NamedTuple):
    """What a dialog asks. `verb` is the button for Yes, `lines` name the targets."""

    title: str
    lines: Sequence[str]
    verb: str
    left_out: Sequence[str] = ()
    """What the order is not for, and why."""
    choices: Sequence[tuple[str, str]] = ()
    """What is chosen from, with what each means."""
    prompt: str = ""
    """What is typed; empty for nothing."""
    read: Callable[[str], Any] = str
    """Reads what was typed. Raises ValueError."""


def ask_jobs(order: JobOrder, choice: TargetChoice, hidden: int = 0) -> OrderQuestion:
    """The question about an order to jobs; `hidden` counts targets that the lists do not show now."""
    return OrderQuestion(
        word_title(order, len(choice.chosen), hidden),
        list_lines(choice.chosen),
        order.verb,
        word_left_out(choice.left_out),
        order.choices,
        order.prompt,
        order.read,
    )


class OrderDialog(SeenDialog[GivenOrder | None]):
    """Asks whether to give an order. The targets are those of its beginning, also where the list changes meanwhile."""

    DEFAULT_CSS = """
    OrderDialog { align: center middle; }
    OrderDialog > Vertical {
        width: 90%; max-width: 100; height: auto; max-height: 95%; border: round $warning; padding: 0 1;
    }
    OrderDialog VerticalScroll { height: auto; }
    OrderDialog Static { width: 1fr; }
    OrderDialog #order-targets, OrderDialog #order-left-out { text-wrap: nowrap; text-overflow: ellipsis; }
    OrderDialog #order-left-out { color: $text-muted; max-height: 4; }
    OrderDialog #order-prompt { margin-top: 1; }
    OrderDialog #order-trouble { color: $text-error; }
    OrderDialog OptionList { height: auto; max-height: 9; border: none; padding: 0; }
    OrderDialog Horizontal { height: 1; margin-top: 1; }
    OrderDialog Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bind("dialog")]

    def __init__(self, question: OrderQuestion) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        question = self.question
        with Vertical():
            yield Static(_write([question.title]), id="order-title")
            with VerticalScroll(can_focus=False):
                yield Static(_write(question.lines), id="order-targets")
            if question.left_out:
                yield Static(_write(question.left_out), id="order-left-out")
            if question.choices:
                yield ChoiceList(*self._list_options(), compact=True)
            if question.prompt:
                yield Static(Content(question.prompt), id="order-prompt")
                yield TextInput(compact=True)
                yield Static(id="order-trouble", markup=False)
            with Horizontal():
                yield Button(Content("No"), id="no", compact=True)
                yield Button(Content(question.verb), id="yes", variant="warning", compact=True)

    def _list_options(self) -> Sequence[Option]:
        """The first one does nothing: it is what Enter means."""
        width = max(5, *(len(value) for value, _ in self.question.choices))
        options = [Option(Content(f"{value:{width}} {meaning}"), value) for value, meaning in self.question.choices]
        return [Option(Content("none, go back"), ""), *options]

    def on_mount(self) -> None:
        """Enter means No; until the dialog has been seen, nothing means Yes."""
        if self.question.prompt:
            self.query_one(Input).focus()
        elif self.question.choices:
            options = self.query_one(OptionList)
            options.highlighted = 0
            options.focus()
        else:
            self.query_one("#no").focus()
        self.note_painted()

    def on_resize(self) -> None:
        """Give the targets their lines, up to a third: an automatic height of the box counts all of them."""
        self.query_one(VerticalScroll).styles.height = min(len(self.question.lines), max(1, self.size.height * 3 // 10))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """One of the two was chosen."""
        event.stop()
        self.action_answer(event.button.id == "yes")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A signal was chosen, or none."""
        event.stop()
        self.action_answer(bool(event.option.id))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """A value was typed."""
        event.stop()
        self.action_answer(True)

    def action_answer(self, yes: bool) -> None:
        """Answer; a Yes counts once the dialog was seen, and with a value that can be read."""
        if not yes:
            self.dismiss(None)
        elif not self.was_answered:
            return
        elif self.question.prompt:
            self._answer_typed(self.query_one(Input).value.strip())
        elif self.question.choices:
            option = self.query_one(OptionList).highlighted_option
            if option is not None and option.id:
                self.dismiss(GivenOrder(option.id))
        else:
            self.dismiss(GivenOrder())

    def _answer_typed(self, text: str) -> None:
        try:
            value = self.question.read(text)
        except ValueError as error:
            self.query_one("#order-trouble", Static).update(Content(clean_text(str(error))))
            self.query_one(Input).focus()
        else:
            self.dismiss(GivenOrder(value))

    def action_scroll(self, by: int) -> None:
        """Scroll the targets by lines; in a list of signals, move."""
        if isinstance(self.focused, OptionList):
            move = self.focused.action_cursor_down if by > 0 else self.focused.action_cursor_up
            move()
        else:
            self.query_one(VerticalScroll).scroll_relative(y=by, animate=False, immediate=True)

    def action_page(self, by: int) -> None:
        """Scroll the targets by pages."""
        targets = self.query_one(VerticalScroll)
        targets.scroll_relative(y=by * max(1, targets.size.height - 1), animate=False, immediate=True)


def _write(lines: Sequence[str]) -> Content:
    """The lines, fit for a terminal."""
    return Content("\n".join(map(clean_text, lines)))


def word_title(order: JobOrder, count: int, hidden: int) -> str:
    """What is asked: `Cancel these 3 jobs?  1 of them is marked but not shown now`."""
    jobs = "this job" if count == 1 else f"these {count} jobs"
    title = (order.question or f"{order.verb} {{}}?").format(jobs)
    if hidden:
        title += f"  {hidden} of them {'is' if hidden == 1 else 'are'} marked but not shown now"
    return title


def list_lines(targets: Sequence[Target]) -> list[str]:
    """Each target with its state in front, where no long name can hide it, and none of many states a name."""
    states = [cut_text(_word_briefly(target.states), _LONGEST_STATE, "…") for target in targets]
    width = max(map(len, states), default=0)
    return [f"{state:{width}}  {target.label}" for state, target in zip(states, targets, strict=True)]


def _word_briefly(states: Mapping[str, int]) -> str:
    """`RUNNING`, or `3 R, 1 F`."""
    if len(states) == 1:
        return word_states(states)
    return ", ".join(f"{count} {CODES.get(state, state)}" for state, count in states.items())


def word_left_out(reasons: Sequence[str]) -> list[str]:
    """What the order is not for, some of it in full."""
    shown = [f"left out: {reason}" for reason in reasons[:3]]
    more = len(reasons) - len(shown)
    return [*shown, *([f"left out: {more} more"] if more > 0 else [])]
