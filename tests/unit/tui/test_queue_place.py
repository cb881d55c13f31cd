"""The queue as it is used: the tree, the cursor, filters, columns, whose jobs; against a source in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from tests.unit.tui.fake_source import ANY, FakeSource, job
from tests.unit.tui.queue_frames import read_screen
from tests.unit.tui.queue_lab import STALE, make_array, make_group, make_lab
from tests.unit.tui.stories import Story, play, settle
from textual.pilot import Pilot

from overspan.bridge.client.records import JobFilter, QueueChanges
from overspan.bridge.listings.rows import EXTENTS, JobRow
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.head import Head
from overspan.tui.places import queue
from overspan.tui.queue.scope import Owners
from overspan.tui.widgets.filter_box import FilterBox, FilterInput
from overspan.tui.widgets.text_line import TextLine


class AskedSource(FakeSource):
    """A lab that chooses users, leaves out what was not asked for, and notes what was."""

    def __init__(self, rows: list[JobRow]) -> None:
        self.asked: list[JobFilter] = []
        super().__init__(rows)

    def queue_changes(self, version: str = "", wanted: JobFilter = ANY, wait: float = 0) -> QueueChanges:
        """As the client."""
        if not self.asked or self.asked[-1] != wanted:
            self.asked.append(wanted)
        changes = super().queue_changes(version, wanted, min(wait, 0.2))
        columns = EXTENTS[wanted.extent]
        rows = [
            JobRow(**{name: getattr(row, name) for name in columns})
            for row in changes.rows
            if not wanted.users or row.user in wanted.users
        ]
        return changes._replace(rows=rows)


def play_with(options: TopOptions, source: FakeSource, story: Story, size: tuple[int, int] = (100, 24)) -> None:
    """Run a story with options of the command line."""

    async def run() -> None:
        app = TopApp(source, options)
        async with app.run_test(size=size) as pilot:
            await story(app, pilot)

    asyncio.run(run())


def refs(app: TopApp) -> list[str]:
    return [line.node.ref for line in app.queue.table.lines]


def current(app: TopApp) -> str:
    line = app.queue.table.current
    return "" if line is None else line.node.ref


def frame(app: TopApp) -> str:
    return app.queue.query_one("#queue-frame", TextLine).text


async def begin(app: TopApp, pilot: Pilot[int], lines: int = 0) -> None:
    """Wait for the first lines on the screen."""
    await settle(pilot, lambda: len(refs(app)) == lines or (not lines and bool(refs(app))))
    await settle(pilot, lambda: "JOBID" in read_screen(app))


def read_titles(app: TopApp) -> str:
    """The line of the titles."""
    return next((line for line in read_screen(app).splitlines() if "JOBID" in line), "")


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await pilot.pause()


def test_the_cursor_stays_on_its_job_when_others_come_and_go() -> None:
    source = FakeSource([job(1), job(2), job(3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        table = app.queue.table
        await settle(pilot, lambda: len(table.lines) == 3)
        await pilot.press("down")
        assert current(app) == "2"
        source.put(job(4))
        await settle(pilot, lambda: len(table.lines) == 4)
        assert current(app) == "2"
        source.drop(2)
        await settle(pilot, lambda: len(table.lines) == 3)
        assert current(app) == "1"

    play(source, story)


def test_heads_fold_and_unfold_and_members_go_to_their_head() -> None:
    source = FakeSource([*make_group(42), job(1)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 2)
        await press(pilot, "end", "up")
        assert current(app) == "42" and refs(app) == ["42", "1"]
        await press(pilot, "enter")
        assert refs(app) == ["42", "42+0", "42+1", "72", "73", "42+2", "1"]
        await press(pilot, "down", "down", "left")
        assert current(app) == "42"
        assert len(refs(app)) == 7
        await press(pilot, "left")
        assert refs(app) == ["42", "1"]
        await press(pilot, "left", "right")
        assert len(refs(app)) == 7
        await press(pilot, "down", "asterisk")
        assert refs(app) == ["42", "1"]
        assert current(app) == "42"
        await press(pilot, "asterisk")
        # A head that comes later is as all others are.
        source.put(*make_array(44))
        await settle(pilot, lambda: "44_0" in refs(app))
        assert "42+0" in refs(app)

    play(source, story)


def test_details_beside_the_list_take_columns_and_give_them_back() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: "a-rather-large" in read_screen(app))
        title = read_titles(app)
        await pilot.press("d")
        # Nothing has changed in the queue meanwhile.
        await settle(pilot, lambda: read_titles(app) != title and " ST " in read_titles(app)[:60])
        await settle(pilot, lambda: "TIME" in read_titles(app)[:60])
        await pilot.press("d")
        await settle(pilot, lambda: read_titles(app) == title)

    play(FakeSource(make_lab()), story, (120, 30))


def test_enter_on_a_job_opens_its_details_and_closing_leaves_the_filter_for_later() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 2)
        await press(pilot, "slash", *"fit", "enter")
        await press(pilot, "enter")
        assert app.queue.pane.display
        assert app.queue.close_open() and not app.queue.pane.display
        assert app.queue.filter_source == "fit"
        assert app.queue.close_open()
        await settle(pilot, lambda: app.queue.filter_source == "")
        assert not app.queue.close_open()

    play(FakeSource([job(1), job(2)]), story)


def test_a_head_is_one_target_and_marks_are_those_that_the_filter_hides_too() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 3)
        await press(pilot, "home")
        assert [target.ref for target in app.queue.list_targets()] == [current(app)]
        await press(pilot, "ctrl+a")
        assert {target.ref for target in app.queue.list_targets()} == {"44", "42", "1"}
        assert "3 marked" in frame(app)
        await press(pilot, "slash", *"user:bob", "enter")
        assert "3 marked, 2 of them not shown" in frame(app)
        assert len(app.queue.list_targets()) == 3
        # What is gone is no target any more.
        source.drop(1)
        await settle(pilot, lambda: "2 marked, 1 of them not shown" in frame(app))
        await press(pilot, "backslash")
        assert "marked" not in frame(app)

    source = FakeSource([*make_group(42), *make_array(44), job(1)])
    play(source, story)


def test_a_filter_counts_as_it_is_typed_and_is_kept_or_dropped() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 3)
        await press(pilot, "slash", *"name:e")
        assert refs(app) == ["3", "2"]
        assert "2/3 match /name:e" in frame(app)
        await press(pilot, *"v")
        assert refs(app) == ["2"]
        await press(pilot, "enter")
        assert app.focused is app.queue.table
        assert not app.query_one(FilterBox).typing
        # Letters are orders again, and the filter stands.
        await press(pilot, "j", "slash", "escape")
        assert refs(app) == ["3", "2", "1"]
        assert app.focused is app.queue.table
        await press(pilot, "slash", "up")
        assert app.queue.filter_source == "name:ev"
        await press(pilot, "down")
        assert app.queue.filter_source == ""

    play(FakeSource([job(1, "fit"), job(2, "eval"), job(3, "test")]), story)


def test_a_filter_is_completed_from_what_there_is() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 2)
        box = app.query_one(FilterInput)
        await press(pilot, "slash", *"us")
        await settle(pilot, lambda: box._suggestion == "user:")
        await press(pilot, "tab")
        assert box.value == "user:"
        await press(pilot, *"b")
        await settle(pilot, lambda: box._suggestion == "user:bob")
        await press(pilot, "tab", "enter")
        assert refs(app) == ["2"]

    play(FakeSource([job(1), job(2, user="bob")]), story)


HOSTILE = "x\x1b[2J\x9b1m\x07[red]\u202e"


def test_a_hostile_filter_reaches_no_terminal() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 0)
        for set_it in (app.queue.set_filter, lambda text: setattr(app.query_one(FilterInput), "value", text)):
            set_it("name:fit")
            await settle(pilot, lambda: app.queue.filter_source == "name:fit")
            set_it(f"( {HOSTILE}")
            await settle(pilot, lambda: "[2J" in frame(app))
            await press(pilot, "slash")
            await settle(pilot, lambda: "[red]" in read_screen(app))
            assert not set(read_screen(app)) & set("\x1b\x9b\x07\u202e")

    play_with(TopOptions(filter="name:fit"), FakeSource([job(1)]), story)


def test_groups_that_cannot_be_found_are_told_and_all_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(users: Collection[str]) -> frozenset[str]:
        raise OverspanError("the directory does not answer")

    monkeypatch.setattr(queue, "find_me", lambda: "ana")
    monkeypatch.setattr(queue, "find_colleagues", find)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 2)
        await press(pilot, "f", "f")
        await settle(pilot, lambda: len(refs(app)) == 2 and app.queue.scope.owners is Owners.ALL)

    play(FakeSource([job(1, user="ana"), job(2, user="bob")]), story)


def test_no_letter_of_a_filter_is_an_order() -> None:
    source = FakeSource([job(1)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 1)
        await press(pilot, "slash", *"qcfesSCor1234567p")
        assert app.queue.filter_source == "qcfesSCor1234567p"
        assert app.place is app.queue and len(app.screen_stack) == 1
        assert source.orders == []

    play(source, story)


def test_sorting_by_keys_by_clicks_and_by_the_dialog() -> None:
    rows = [job(1, "b"), job(2, "c"), job(3, "a")]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 3)
        assert refs(app) == ["3", "2", "1"]
        await press(pilot, "shift+right", "shift+right")
        assert refs(app) == ["3", "1", "2"] and "by NAME▲" in frame(app)
        await press(pilot, "S")
        assert refs(app) == ["2", "1", "3"] and "by NAME▼" in frame(app)
        await press(pilot, "shift+left")
        assert refs(app) == ["1", "2", "3"] and "by JOBID▲" in frame(app)
        await press(pilot, "s", "up", "enter")
        assert refs(app) == ["3", "2", "1"] and "by state and priority" in frame(app)
        await press(pilot, "s", "escape")
        assert "by state and priority" in frame(app)
        await pilot.click("#queue", offset=(9, 0))
        await settle(pilot, lambda: "by NAME▲" in frame(app))
        await pilot.click("#queue", offset=(9, 0))
        await settle(pilot, lambda: "by NAME▼" in frame(app))

    play(FakeSource(rows), story)


def test_a_column_asks_for_more_of_each_row_where_it_needs_that() -> None:
    source = AskedSource([job(1, account="lab", nice=7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 1)
        assert [wanted.extent for wanted in source.asked] == ["core"]
        app.queue._take_columns(("id", "account"))
        await settle(pilot, lambda: "lab" in read_screen(app))
        app.queue._take_columns(("id", "nice"))
        await settle(pilot, lambda: "7" in read_screen(app).splitlines()[4])
        # Less is never asked for: the rows are there already.
        app.queue._take_columns(("id", "name"))
        await settle(pilot, lambda: "fit" in read_screen(app) and len(read_titles(app).split()) == 2)
        assert [wanted.extent for wanted in source.asked] == ["core", "usual", "all"]

    play_with(TopOptions(wanted=JobFilter(extent="core")), source, story)


def test_a_filter_by_account_asks_for_accounts() -> None:
    source = AskedSource([job(1, account="lab"), job(2, account="other")])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 2)
        app.queue.set_filter("account:lab")
        await settle(pilot, lambda: refs(app) == ["1"])
        assert [wanted.extent for wanted in source.asked] == ["core", "usual"]

    play_with(TopOptions(wanted=JobFilter(extent="core")), source, story)


def test_columns_are_chosen_in_the_dialog() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 1)
        await press(pilot, "C", "down", "space", "end", "space", "enter")
        await settle(pilot, lambda: "WORK_DIR" in read_titles(app) and "NAME" not in read_titles(app))
        assert read_titles(app).split()[0] == "JOBID"
        await press(pilot, "C", "0", "enter")
        await settle(pilot, lambda: "NAME" in read_titles(app))
        await press(pilot, "C", "down", "space", "q")
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert "NAME" in read_titles(app)

    play(FakeSource([job(1)]), story, (140, 40))


def test_a_key_goes_round_mine_my_groups_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(users: Collection[str]) -> frozenset[str]:
        assert set(users) == {"ana", "bob", "eve"}
        return frozenset({"ana", "bob"})

    monkeypatch.setattr(queue, "find_me", lambda: "ana")
    monkeypatch.setattr(queue, "find_colleagues", find)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 3)
        await press(pilot, "f")
        assert refs(app) == ["1"] and "my jobs" in frame(app)
        await press(pilot, "f")
        await settle(pilot, lambda: refs(app) == ["2", "1"])
        assert "my groups' jobs" in frame(app)
        await press(pilot, "f")
        assert refs(app) == ["3", "2", "1"]

    play(FakeSource([job(1, user="ana"), job(2, user="bob"), job(3, user="eve")]), story)


def test_users_of_the_command_line_can_be_left_and_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "find_me", lambda: "ana")
    source = AskedSource([job(1, user="ana"), job(2, user="bob")])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: refs(app) == ["2"])
        assert "-u bob" in frame(app)
        await press(pilot, "f")
        await settle(pilot, lambda: refs(app) == ["1"])
        assert not source.asked[-1].users
        app.queue._show_owners(Owners.ALL, ())
        await settle(pilot, lambda: refs(app) == ["2", "1"])
        await press(pilot, "f")
        await settle(pilot, lambda: refs(app) == ["2"])
        assert source.asked[-1].users == ("bob",)

    play_with(TopOptions(wanted=JobFilter(users=("bob",))), source, story)


def test_ended_jobs_leave_after_a_minute_and_a_key_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource([job(1), job(2, state="FAILED"), job(3, state="COMPLETED")])
    now = source.now
    source.put(job(2, state="FAILED", ended_at=now - 59), job(3, state="COMPLETED", ended_at=now - 600))
    monkeypatch.setattr(TopApp, "now", lambda self: now)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        nonlocal now
        await begin(app, pilot)
        assert refs(app) == ["1", "2"]
        await press(pilot, "e")
        assert refs(app) == ["1", "3", "2"] and "ended too" in frame(app)
        await press(pilot, "e")
        now += 2
        # Nothing comes from the daemon; the time alone takes it away.
        await settle(pilot, lambda: refs(app) == ["1"])

    play(source, story)


def test_a_lost_daemon_leaves_what_is_known_and_comes_back_to_it() -> None:
    source = FakeSource([job(1), job(2), job(3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 3)
        await press(pilot, "down", "space")
        source.lose(Unreachable("the daemon\x1b[2J is not running"))
        await settle(pilot, lambda: "no daemon" in app.query_one(Head).text)
        assert "\x1b" not in app.query_one(Head).text
        assert refs(app) == ["3", "2", "1"] and app.queue.table.has_class("-lost")
        source.lost = None
        await press(pilot, "r")
        await settle(pilot, lambda: "no daemon" not in app.query_one(Head).text)
        assert current(app) == "1" and not app.queue.table.has_class("-lost")
        assert [target.ref for target in app.queue.list_targets()] == ["2"]

    play(source, story)


def test_the_head_has_the_places_that_there_are_and_clicks_go_there() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot, 1)
        assert app.query_one(Head).text.startswith(
            "1 Queue  2 Evaluations  3 Pools  4 Nodes  5 History  6 Clusters  7 Schedules"
        )
        await pilot.click("#head-places", offset=(35, 0))
        await settle(pilot, lambda: app.place.name_of_place == "nodes")
        await press(pilot, "1")
        await settle(pilot, lambda: app.place is app.queue)

    play(FakeSource([job(1)]), story)


def test_options_are_where_it_begins() -> None:
    options = TopOptions(filter="state:r (", columns=("id", "user"), sort="-user", unfolded=True, read_only=True)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await settle(pilot, lambda: "4900_0" in read_screen(app))
        screen = read_screen(app)
        assert "/state:r (" in frame(app) and "by USER▼" in frame(app)
        assert "4900_0" in screen and "4900_3" not in screen
        assert screen.splitlines()[3].split() == ["JOBID", "USER▼"]
        assert "read-only" in app.query_one(Head).text
        assert "'(' is not a regular expression" in screen

    play_with(options, FakeSource(make_lab()), story)


def test_a_second_without_news_changes_nothing_of_head_and_frame() -> None:
    source = FakeSource(make_lab())
    source.stale = STALE

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.pause()
        painted: list[Any] = []
        for line in app.query(TextLine):
            line.refresh = lambda *args, **options: painted.append(args)  # type: ignore[method-assign,assignment]
        app.refresh_head()
        app.queue._write_frame()
        assert painted == []

    play(source, story)


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (80, 24), (250, 60)])
def test_any_size_is_painted(size: tuple[int, int]) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await press(pilot, "asterisk", "slash", *"user:(", "escape", "C", "escape", "s", "escape")
        await pilot.resize_terminal(size[0] + 30, size[1] + 3)
        await settle(pilot, lambda: len(read_screen(app).splitlines()) == size[1] + 3)

    source = FakeSource(make_lab())
    source.stale = STALE
    play(source, story, size)
