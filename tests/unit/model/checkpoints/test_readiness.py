"""When a checkpoint is complete, by each rule and layout."""

from __future__ import annotations

import pytest

from overspan.bridge.model.checkpoints.listings import FolderListing, FoundCheckpoint, FoundFile, FoundMarker
from overspan.bridge.model.checkpoints.readiness import (
    SETTLE,
    CheckpointLayout,
    Sighting,
    Verdict,
    judge,
    recognise,
    sight,
    version_of,
)
from overspan.bridge.model.evaluations import Readiness, ReadyRule

LAYOUT = Readiness()


def folder(name: str, *files: str | FoundFile, **values: object) -> FoundCheckpoint:
    """A folder with these files, of one byte each."""
    made = tuple(FoundFile(file, 1) if isinstance(file, str) else file for file in files)
    return FoundCheckpoint(name, True, files=made, **values)  # type: ignore[arg-type]


def verdict(
    found: FoundCheckpoint, rule: Readiness = LAYOUT, *, quiet: float = 1e6, listing: FolderListing | None = None
) -> Verdict:
    """What is said of a checkpoint that has not changed for so long."""
    return judge(rule, found, listing or FolderListing("k", (found,)), Sighting("m", 0.0), quiet)


def test_a_marker_decides() -> None:
    rule = Readiness(ReadyRule.MARKER, marker="DONE")
    assert not verdict(folder("a", "w"), rule).ready
    assert "DONE is not there" in verdict(folder("a", "w"), rule).why
    assert verdict(folder("a", marker=FoundMarker(0, 1)), rule, quiet=0).ready


def test_a_name_that_appears_whole_is_complete_at_once() -> None:
    assert verdict(folder("a"), Readiness(ReadyRule.RENAME), quiet=0).ready


def test_a_quiet_period_is_counted_by_the_watchers_clock() -> None:
    rule = Readiness(ReadyRule.QUIET, quiet=30)
    waits = verdict(folder("a", "w"), rule, quiet=29.5)
    assert not waits.ready and waits.look_at == 30.0 and not waits.guess
    assert verdict(folder("a", "w"), rule, quiet=30).ready
    assert not verdict(folder("a"), rule).ready, "what is empty is never complete"


def test_a_change_begins_the_quiet_period_again() -> None:
    first = sight(folder("a", "w"), None, 5.0)
    same = sight(folder("a", "w"), first, 9.0)
    grown = sight(folder("a", FoundFile("w", 2)), same, 12.0)
    assert (first.since, same.since, grown.since) == (5.0, 5.0, 12.0)


def test_of_an_unknown_layout_completeness_is_a_guess() -> None:
    waits = verdict(folder("a", "weights.bin"), quiet=10)
    assert not waits.ready and waits.guess
    done = verdict(folder("a", "weights.bin"), quiet=30)
    assert done.ready and done.guess


@pytest.mark.parametrize(
    ("name", "before", "last", "layout"),
    [
        ("step_1", ["__0_0.distcp"], ".metadata", CheckpointLayout.TORCH),
        ("checkpoint-500", ["model.safetensors", "optimizer.pt"], "trainer_state.json", CheckpointLayout.TRAINER),
    ],
)
def test_the_last_file_of_a_layout_decides(name: str, before: list[str], last: str, layout: CheckpointLayout) -> None:
    early, late = folder(name, *before), folder(name, *before, last)
    assert verdict(early) == Verdict(False, f"{last} is not there", layout)
    assert verdict(late) == Verdict(True, layout=layout)


def test_a_last_file_that_is_written_in_place_has_to_stay_as_it_is() -> None:
    found = folder("checkpoint-5", "trainer_state.json")
    early = verdict(found, quiet=SETTLE / 2)
    assert not early.ready and early.look_at == SETTLE
    assert not verdict(folder("checkpoint-5", FoundFile("trainer_state.json", 0))).ready


def test_deepspeed_names_the_newest() -> None:
    files = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    old, new = folder("global_step10", *files), folder("global_step20", *files)
    part = folder("global_step15", files[0])
    listing = FolderListing("k", (old, part, new), beside=(("latest", "global_step20"),))
    assert verdict(new, listing=listing).ready
    assert verdict(old, listing=listing).ready, "it was the newest before"
    left = verdict(part, listing=listing)
    assert not left.ready and "left incomplete" in left.why
    assert not verdict(folder("global_step30", *files), listing=listing).ready
    assert verdict(new, listing=FolderListing("k", (new,))).why == "latest is not there"


def test_megatron_names_its_iteration() -> None:
    found = folder("iter_0000100", "mp_rank_00/model_optim_rng.pt")
    for text, ready in (("100", True), ("99", False), ("release", False)):
        listing = FolderListing("k", (found,), beside=(("latest_checkpointed_iteration.txt", text),))
        assert verdict(found, listing=listing).ready is ready, text
    assert recognise(found, FolderListing("k")) is CheckpointLayout.DEEPSPEED or not verdict(found).ready


def test_a_safetensors_index_wants_all_shards_whole() -> None:
    index, names = FoundFile("model.safetensors.index.json", 9), ("m-1-of-2.safetensors", "m-2-of-2.safetensors")
    whole = [FoundFile(name, 10, True) for name in names]
    assert verdict(folder("a", index, *whole, shards=names)).ready
    assert "1 of 2 shards are missing" in verdict(folder("a", index, whole[0], shards=names)).why
    partial = FoundFile(names[1], 10, False)
    assert verdict(folder("a", index, whole[0], partial, shards=names)).why == "m-2-of-2.safetensors is not complete"
    assert "index" in verdict(folder("a", *whole)).why


def test_a_single_file_whose_format_tells() -> None:
    def file(whole: bool | None) -> FoundCheckpoint:
        return FoundCheckpoint("a.npz", False, files=(FoundFile("", 10, whole),))

    assert verdict(file(True)).ready and not verdict(file(False)).ready
    assert verdict(file(None), quiet=29).guess and not verdict(file(None), quiet=29).ready


def test_what_cannot_be_read_is_not_complete() -> None:
    assert verdict(folder("a", unreadable="/a: Permission denied")).why == "/a: Permission denied"


def test_a_version_is_the_marker_or_names_and_sizes_never_times_alone() -> None:
    one = folder("a", "w", time=1.0)
    assert version_of(one) == version_of(folder("a", "w", time=2.0))
    assert version_of(one) != version_of(folder("a", FoundFile("w", 2)))
    with_scores = folder("a", "w", "scores")
    assert version_of(one) != version_of(with_scores)
    assert version_of(one) == version_of(with_scores, ("w",)), "what evaluations add makes no version"
    assert version_of(one, ("w", "v")) == version_of(one), "what is gone is a change only where sizes tell"
    marked = [version_of(folder("a", "w", marker=FoundMarker(1, time, "x"))) for time in (1, 2)]
    assert marked[0] != marked[1]
