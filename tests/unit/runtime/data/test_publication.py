"""In which order files are sent, so that no reader takes a part of a checkpoint for the whole."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.runtime.data.publication import (
    SERIES_NANOSECONDS,
    SMALL,
    SendStep,
    UnsentFile,
    is_marker,
    merge_steps,
    order_removals,
    plan_steps,
)


def plan(*files: tuple[str, int] | tuple[str, int, bool], markers: tuple[str, ...] = ()) -> list[list[str]]:
    """The steps for files of these names, written at these times, settled unless they say otherwise."""
    made = [UnsentFile(file[0], 1, file[1], file[2] if len(file) > 2 else True) for file in files]
    return [list(step.names) for step in plan_steps(made, markers)]


def test_files_go_one_by_one_in_the_order_of_their_last_writes() -> None:
    assert plan(("b", 2), ("c", 3), ("a", 1)) == [["a"], ["b"], ["c"]]


def test_what_is_being_written_waits_and_keeps_nobody() -> None:
    assert plan(("a", 1, False), ("b", 2)) == [["b"]]


class TestSeries:
    """Small files that are new in the store, and alike, go several at once; the last one after the rest."""

    @staticmethod
    def plan_new(*names: str, size: int = 1, apart: int = 1, new: bool = True) -> list[list[str]]:
        """The steps for files that were written in this order, so many nanoseconds apart."""
        files = [UnsentFile(name, size, number * apart, True, new) for number, name in enumerate(names)]
        return [list(step.names) for step in plan_steps(files)]

    def test_the_last_one_is_apart(self) -> None:
        assert self.plan_new("d/s-1.txt", "d/s-3.txt", "d/s-2.txt") == [["d/s-1.txt", "d/s-3.txt"], ["d/s-2.txt"]]
        assert self.plan_new("1f3a-9c", "00ab-d1", "9d8c-e2") == [["1f3a-9c", "00ab-d1"], ["9d8c-e2"]]

    def test_others_go_one_by_one(self) -> None:
        one_by_one = [["1"], ["2"], ["3"]]
        assert self.plan_new("1", "2", "3", new=False) == one_by_one
        assert self.plan_new("1", "2", "3", size=SMALL + 1) == one_by_one
        assert self.plan_new("1", "2", "3", apart=SERIES_NANOSECONDS) == one_by_one
        assert self.plan_new("a/1", "b/2", "a/3") == [["a/1"], ["b/2"], ["a/3"]]

    def test_another_name_comes_between_two_series(self) -> None:
        assert self.plan_new("1", "2", "best", "3", "4", "5") == [["1"], ["2"], ["best"], ["3", "4"], ["5"]]

    def test_a_step_is_not_longer_than_an_uploader_may_wait(self) -> None:
        assert [len(step) for step in self.plan_new(*map(str, range(600)))] == [256, 256, 87, 1]

    def test_names_by_content_go_one_by_one(self) -> None:
        for digits in (64, 40, 38, 32, 30):
            names = [f"blobs/sha256/{digit * digits}" for digit in "a1f"]
            assert self.plan_new(*names) == [[name] for name in names]
        for start in ("sha256-", "sha512:", "md5_", "blake3-"):
            names = [f"blobs/{start}{digit * 64}" for digit in "123"]
            assert self.plan_new(*names) == [[name] for name in names]
        # As a time in nanoseconds, or with more than a hash.
        assert self.plan_new(*(f"model-{digit * 32}.safetensors" for digit in "123"))[0][1:]
        assert self.plan_new("1764320000000000001", "1764320000000000002", "1764320000000000003")[0][1:]
        assert self.plan_new(*(f"{digit * 32}.png" for digit in "123"))[0][1:]

    def test_the_last_one_says_how_many_steps_the_rest_is(self) -> None:
        files = [UnsentFile(str(number), 1, number, True, True) for number in range(300)]
        assert [step.rest for step in plan_steps(files)] == [0, 0, 2]
        assert [step.rest for step in plan_steps(files[:1])] == [0]

    def test_what_a_marker_covers_is_no_part_of_one(self) -> None:
        files = [UnsentFile(name, 1, number, True, True) for number, name in enumerate(["9", "1", "2", "DONE"])]
        assert [step.names for step in plan_steps(files, {"DONE"})] == [("9", "1", "2"), ("DONE",)]


def test_a_marker_goes_last_and_what_it_covers_in_any_order() -> None:
    files = [("step_1/.metadata", 3), ("step_1/b", 2), ("step_1/a", 1), ("log", 2)]
    assert plan(*files) == [["step_1/a", "step_1/b"], ["step_1/.metadata"], ["log"]]


def test_a_marker_waits_for_what_was_written_before_it() -> None:
    assert plan(("step_1/.metadata", 3), ("step_1/a", 1), ("step_1/b", 2, False)) == [["step_1/a"]]


def test_what_was_written_after_a_marker_does_not_keep_it() -> None:
    assert plan(("step_1/.metadata", 3), ("step_1/events", 4, False)) == [["step_1/.metadata"]]


def test_what_another_clock_says_was_written_after_a_marker_may_have_been_before() -> None:
    def plan_apart(*files: UnsentFile) -> list[tuple[str, ...]]:
        return [step.names for step in plan_steps(files, skew=2)]

    marker = UnsentFile("1/.metadata", 1, 3, True)
    assert plan_apart(marker, UnsentFile("1/a", 1, 5, True)) == [("1/a",), ("1/.metadata",)]
    assert plan_apart(marker, UnsentFile("1/a", 1, 5, False)) == []
    assert plan_apart(marker, UnsentFile("1/a", 1, 6, False)) == [("1/.metadata",)]


def test_checkpoints_go_in_the_order_of_their_markers() -> None:
    files = [("2/a", 4), ("1/.metadata", 3), ("2/.metadata", 5), ("1/a", 2)]
    assert plan(*files) == [["1/a"], ["1/.metadata"], ["2/a"], ["2/.metadata"]]


def test_a_marker_beside_checkpoints_comes_after_them_and_theirs() -> None:
    files = [("latest", 4), ("step_1/a", 1), ("step_1/.metadata", 2)]
    assert plan(*files) == [["step_1/a"], ["step_1/.metadata"], ["latest"]]


def test_a_marker_that_only_the_job_file_knows() -> None:
    assert plan(("1/DONE", 1), ("1/a", 1)) == [["1/DONE"], ["1/a"]]
    assert plan(("1/DONE", 1), ("1/a", 1), markers=("DONE",)) == [["1/a"], ["1/DONE"]]


def test_removals_begin_with_markers() -> None:
    assert order_removals(["1/a", "1/.metadata", "1/.b"]) == ["1/.metadata", "1/.b", "1/a"]


FILES = st.lists(
    st.builds(
        UnsentFile,
        st.sampled_from(["a", "latest", "1/a", "1/b", "1/.metadata", "1/in/c", "1/in/.metadata", "2/a", "2/.metadata"]),
        st.just(1),
        st.integers(1, 4),
        st.booleans(),
        st.booleans(),
    ),
    unique_by=lambda file: file.name,
)


@given(FILES, st.integers(0, 2))
def test_each_settled_file_is_sent_once_and_no_marker_before_what_it_speaks_of(
    files: list[UnsentFile], skew: int
) -> None:
    planned = plan_steps(files, skew=skew)
    merged = merge_steps(planned)
    _check_order(files, planned, skew)
    _check_order(files, merged, skew)
    assert all(is_marker(one.names[-1]) or is_marker(two.names[-1]) for one, two in pairwise(merged))


def _check_order(files: list[UnsentFile], steps: list[SendStep], skew: int) -> None:
    sent = [name for step in steps for name in step.names]
    by_name = {file.name: file for file in files}
    assert len(sent) == len(set(sent))
    assert all(by_name[name].settled for name in sent)
    assert {file.name for file in files if file.settled and not is_marker(file.name)} <= set(sent)
    place = {name: number for number, step in enumerate(steps) for name in step.names}
    for marker in filter(is_marker, sent):
        folder = marker[: marker.rfind("/") + 1]
        for file in files:
            before = file.written <= by_name[marker].written + skew and not is_marker(file.name)
            if before and file.name.startswith(folder):
                assert place[file.name] < place[marker]
