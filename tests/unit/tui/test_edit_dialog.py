"""The dialog of a small file: what is sent and what is not, what stays when it is refused, and which marks stay."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.tui.fake_source import NOTHING, NOW, FakeSource, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import begin, list_marked, read_notes
from tests.unit.tui.queue_lab import make_array
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import TextArea

from overspan.bridge.client.messages import Accepted
from overspan.bridge.model.errors import Conflict, Rejected
from overspan.tui.actions.edit_lines import EditFile
from overspan.tui.actions.editing import Editing
from overspan.tui.actions.orders import choose_targets, find_order
from overspan.tui.app import TopApp
from overspan.tui.dialogs.edit_dialog import EditDialog


class ChoosySource(FakeSource):
    """Refuses to submit some jobs again, as long as that is wanted."""

    refused: tuple[str, ...] = ()

    def resubmit(self, ref: str, failed: bool = False, changes: Mapping[str, str] = NOTHING) -> Accepted:
        """As the client."""
        if ref in self.refused:
            raise Rejected("Memory specification can not be satisfied", remedy="`span sinfo` shows it")
        return super().resubmit(ref, failed, changes)


async def open_file(app: TopApp, pilot: Pilot[int], key: str = "n") -> TextArea:
    """Press the key, and wait until the file can be edited."""
    await pilot.press(key)
    await settle(pilot, lambda: isinstance(app.screen, EditDialog) and app.screen._seen)
    return app.screen.query_one(TextArea)


def test_the_default_is_no() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        for keys in (["escape"], ["tab", "enter"], ["y", "n", "q", "enter", "escape"]):
            area = await open_file(app, pilot)
            await settle(pilot, lambda: "leo:7 fit" in read_frame(app.screen))
            assert area.text.startswith("# only lines that you change")
            await pilot.press(*keys)
            await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert source.orders == [] and len(app.order_log) == 0

    play(source, story)


def test_a_proposal_is_sent_with_what_was_changed() -> None:
    source = FakeSource([job(7, state="TIMEOUT", ended_at=NOW)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        area = await open_file(app, pilot)
        assert "# proposed: twice the time, since it ended by TIMEOUT; it was 1:00:00" in area.text
        assert area.document.get_line(area.cursor_location[0]) == "time: 2:00:00"
        await pilot.press("down", "end", "0", "tab", "tab", "enter")
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert source.orders == [("resubmit", ("7", False, {"time": "2:00:00", "mem": "8G0"}))]
        assert "leo:7 fit: submitted again as leo:99" in read_notes(app)

    play(source, story)


def test_what_cannot_be_read_is_told_and_not_sent() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        area = await open_file(app, pilot)
        area.text = "tiem: 2h\n"
        await pilot.press("ctrl+s")
        await settle(pilot, lambda: "nothing called 'tiem'; did you mean 'time'?" in read_frame(app.screen))
        assert source.orders == [] and area.text == "tiem: 2h\n"

    play(source, story)


def test_a_refusal_stays_in_the_dialog_with_what_was_typed() -> None:
    source = ChoosySource([job(7)])
    source.refused = ("7",)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        area = await open_file(app, pilot)
        area.text = "mem: 900G\n"
        dialog = app.screen
        assert isinstance(dialog, EditDialog)
        app.acted_at = dialog._seen_at
        # Twice is once.
        dialog.action_send()
        dialog.action_send()
        await settle(pilot, lambda: "Memory specification can not be satisfied; `span" in read_frame(app.screen))
        assert area.text == "mem: 900G\n" and [entry.failed for entry in app.order_log] == [True]
        source.refused = ()
        await pilot.press("ctrl+s")
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert source.orders == [("resubmit", ("7", False, {"mem": "900G"}))]

    play(source, story)


def test_of_several_those_that_failed_stay_in_the_dialog_and_keep_their_marks() -> None:
    source = ChoosySource([job(1), job(2), job(3)])
    source.refused = ("2",)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a")
        area = await open_file(app, pilot)
        assert area.text.startswith("# an empty value means") and "\ntime:\n" in area.text
        area.text = "mem: 4G\n"
        await pilot.press("ctrl+s")
        await settle(pilot, lambda: len(app.order_log) == 3 and "this job?" in read_frame(app.screen))
        assert sorted(source.orders) == [("resubmit", (ref, False, {"mem": "4G"})) for ref in "13"]
        assert list_marked(app) == {2}
        await settle(pilot, lambda: "leo:2 fit" in read_frame(app.screen))
        assert "leo:1 fit" not in read_frame(app.screen)
        await pilot.press("escape")
        assert list_marked(app) == {2}

    play(source, story)


def test_values_that_cannot_be_had_are_told() -> None:
    source = FakeSource([job(8)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("n")
        await settle(pilot, lambda: "Resubmit leo:8 fit: nothing is known of 8" in read_notes(app))
        assert len(app.screen_stack) == 1

    play(source, story)


def test_no_dialog_opens_over_what_the_user_went_on_to() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        choice = choose_targets(find_order("resubmit"), app.queue.list_targets())
        editing = Editing(app, find_order("resubmit"), choice)
        await pilot.press("5")
        editing._open(EditFile(()))
        await pilot.pause()
        assert app.place.name_of_place == "history" and len(app.screen_stack) == 1
        await pilot.press("1")
        editing._open(EditFile(()))
        await settle(pilot, lambda: isinstance(app.screen, EditDialog) and app.screen._seen)

    play(source, story)


def test_an_edit_is_one_update_and_its_refusal_is_shown() -> None:
    source = FakeSource([job(7, state="PENDING")])
    source.details["7"] = {"name": "fit", "partition": "gpu", "tasks": [{"time_limit": 3600}]}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        area = await open_file(app, pilot, "E")
        area.text = area.text.replace("partition: gpu", "partition: big").replace("begin:", "begin: now+1hour")
        source.refusal = Conflict("job 7: Job is no longer pending execution", remedy="cancel it and submit it again")
        await pilot.press("ctrl+s")
        await settle(pilot, lambda: "no longer pending execution; cancel it" in read_frame(app.screen))
        source.refusal = None
        await pilot.press("ctrl+s")
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        [(name, (ref, values))] = source.orders
        assert (name, ref, values["partition"], set(values)) == ("update", "7", "big", {"partition", "begin"})

    play(source, story)


def test_failed_elements_are_submitted_again_with_more_time() -> None:
    rows = [*make_array(44)]
    rows[0] = rows[0]._replace(state="TIMEOUT", ended_at=NOW)
    source = FakeSource(rows)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await open_file(app, pilot, "N")
        await pilot.press("ctrl+s")
        await settle(pilot, lambda: len(source.orders) == 1)
        assert source.orders == [("resubmit", ("44", True, {"time": "2:00:00"}))]

    play(source, story)


def test_marks_go_with_what_was_done() -> None:
    source = FakeSource([job(1, state="PENDING"), job(2, state="PENDING"), job(3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a", "H")
        await settle(pilot, lambda: len(app.screen_stack) == 2)
        await settle(pilot, lambda: bool(getattr(app.screen, "_seen", False)))
        await pilot.press("y")
        await settle(pilot, lambda: len(app.queue.table.marks) == 1)
        # What was left out was not acted upon.
        assert list_marked(app) == {3}
        await settle(pilot, lambda: "1 marked" in read_frame(app.screen))

    play(source, story)
