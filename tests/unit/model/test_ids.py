"""Ids and array indices as sbatch(1), squeue(1) and scancel(1) write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.ids import (
    ArraySpec,
    IndexRange,
    JobRef,
    collapse,
    format_array_indices,
    parse_array,
    parse_job_ref,
)


def write_ref(ref: JobRef) -> str:
    """The id as a user writes it, with the steps of elements counted out."""
    job, task, element, elements, throttle, step, cluster, native = ref
    if cluster is not None and native is not None:
        return f"{cluster}:{native}"
    text = str(job)
    if task is not None:
        text = f"{text}+{task}"
    elif element is not None:
        text = f"{text}_{element}"
    elif elements is not None:
        text = f"{text}_[{format_array_indices(elements, throttle)}]"
    if step is not None:
        text = f"{text}.{step}"
    return text if cluster is None else f"{cluster}:{text}"


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("42", JobRef(42)),
        ("42+1", JobRef(42, task=1)),
        ("42+0", JobRef(42, task=0)),
        ("42_7", JobRef(42, element=7)),
        ("42_[0-3,7%2]", JobRef(42, elements=(IndexRange(0, 3), IndexRange(7, 7)), throttle=2)),
        ("42_[0-8:4]", JobRef(42, elements=(IndexRange(0, 8, 4),))),
        ("42_[5000]", JobRef(42, elements=(IndexRange(5000, 5000),))),
        ("42.batch", JobRef(42, step="batch")),
        ("42_7.0", JobRef(42, element=7, step="0")),
        ("42+1.extern", JobRef(42, task=1, step="extern")),
        ("hpc:42", JobRef(42, cluster="hpc", native="42")),
        ("hpc:42_[0-8:4]", JobRef(42, elements=(IndexRange(0, 8, 4),), cluster="hpc", native="42_[0-8:4]")),
        ("arn:aws:eks:x:1:cluster/y:42", JobRef(42, cluster="arn:aws:eks:x:1:cluster/y", native="42")),
        (
            "kube:0b51c1de-8a5e-4f6c-9d42-6f1f3f1f2b11",
            JobRef(0, cluster="kube", native="0b51c1de-8a5e-4f6c-9d42-6f1f3f1f2b11"),
        ),
    ],
)
def test_job_ref(text: str, ref: JobRef) -> None:
    assert parse_job_ref(text) == ref
    assert write_ref(ref) == text.replace("_[0-8:4]", "_[0,4,8]" if ref.cluster is None else "_[0-8:4]")


@pytest.mark.parametrize(
    "text",
    ["", "abc", "-1", "0", "00", "42_", "42_x", "42+", "42+x", "42_[", "42_[]", "42_[3-1]", "42_1+1", "42.", "42.a.b",
     " 42", "42\n", ":42", "hpc:", "hpc:0", "hpc: 42", "٤٢", "²", "9" * 19, "1,2", "42_[1]]"],
)  # fmt: skip
def test_job_ref_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\bid\b|array"):
        parse_job_ref(text)


_SMALL = st.integers(0, 1000)
_JOBS = st.integers(1, 10**18 - 1)
_REFS = st.one_of(
    _JOBS.map(JobRef),
    st.tuples(_JOBS, _SMALL, st.sampled_from([None, "batch", "0"])).map(lambda t: JobRef(t[0], task=t[1], step=t[2])),
    st.tuples(_JOBS, _SMALL).map(lambda t: JobRef(t[0], element=t[1])),
    st.tuples(_JOBS, st.sets(_SMALL, min_size=1).map(collapse), st.none() | st.integers(1, 99)).map(
        lambda t: JobRef(t[0], elements=t[1], throttle=t[2])
    ),
)


@given(_REFS)
def test_job_refs_read_back(ref: JobRef) -> None:
    text = write_ref(ref)
    assert parse_job_ref(text) == ref
    assert parse_job_ref(f"hpc:{text}") == ref._replace(cluster="hpc", native=text)
    assert write_ref(ref._replace(cluster="hpc")) == f"hpc:{text}"


@pytest.mark.parametrize(
    ("text", "written", "throttle"),
    [
        ("0-3", "0-3", None),
        ("7", "7", None),
        ("1,3,5", "1,3,5", None),
        ("0-3,7%2", "0-3,7", 2),
        ("[0-3]", "0-3", None),
        ("[0-3]%2", "0-3", 2),
        ("[0-3%2]", "0-3", 2),
        ("0-9:3", "0-9:3", None),
        ("0-10:3", "0-9:3", None),
        ("0-9:20", "0", None),
        ("1,1,1-2,2", "1-2", None),
        ("007,08", "7-8", None),
        ("4-7,0-3", "0-7", None),
        ("0-8:2,1-9:2", "0-9", None),
        ("0-8:2,4", "0,2,4,6,8", None),
        ("0-8:4,20-30", "0-8:4,20-30", None),
        ("1,,2,", "1-2", None),
        ("0-3%0", "0-3", None),
        ("0-1000", "0-1000", None),
    ],
)
def test_array(text: str, written: str, throttle: int | None) -> None:
    spec = parse_array(text)
    assert spec.throttle == throttle
    assert format_array_indices(spec.ranges, steps=True) == written


@pytest.mark.parametrize(
    "text",
    ["", "3-1", "1-2-3", "-1", "1-", "a", "5:2", "0-9:0", "0-9:", "%2", "1%", "1%%2", "1%2%3", "[1", "1]", "[1]]",
     "[1]%2]", "1 ,2", " 1", "0-1000001", "1000001", "1.5", "[]", ",", "٣"],
)  # fmt: skip
def test_array_refused(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        parse_array(text)


def test_array_limit_is_the_sites() -> None:
    assert parse_array("0-9999", max_index=9999).size() == 10_000
    with pytest.raises(ValueError, match="10000 is too high; the highest allowed is 9999"):
        parse_array("0-10000", max_index=9999)


def test_array_questions() -> None:
    spec = parse_array("20-30,0-9:3%4")
    assert list(spec.indices()) == [0, 3, 6, 9, *range(20, 31)]
    assert (spec.size(), spec.lowest(), spec.highest(), spec.throttle) == (15, 0, 30, 4)
    assert spec.has(6) and spec.has(25) and not spec.has(7) and not spec.has(31)


def test_large_arrays_stay_small() -> None:
    assert len(parse_array("0-9999%50", max_index=10_000).ranges) == 1
    assert len(parse_array("0-4000000:2", max_index=4_000_000).ranges) == 1


def test_array_bombs_are_refused() -> None:
    with pytest.raises(ValueError, match="interleaves more than 1000000 indices"):
        parse_job_ref("5_[" + ",".join(f"0-4000000:{step}" for step in range(2, 90)) + "]")
    with pytest.raises(ValueError, match="too high"):
        parse_job_ref("5_[0-4000001]")


@pytest.mark.parametrize(
    ("text", "written"), [("0-3,7%2", "0-3,7%2"), ("0-9:3", "0,3,6,9"), ("1,2", "1-2"), ("0-9:3%2", "0,3,6,9%2")]
)
def test_steps_are_shown_one_by_one(text: str, written: str) -> None:
    spec = parse_array(text)
    assert format_array_indices(spec.ranges, spec.throttle) == written


_ITEMS = st.lists(
    st.builds(
        lambda first, length, step: (first, first + length, step), _SMALL, st.integers(0, 90), st.integers(1, 12)
    ),
    min_size=1,
    max_size=6,
)


@given(_ITEMS)
def test_arrays_are_the_union_of_their_items(items: list[tuple[int, int, int]]) -> None:
    spec = parse_array(",".join(f"{a}-{b}:{s}" for a, b, s in items), max_index=2000)
    wanted = sorted({index for a, b, s in items for index in range(a, b + 1, s)})
    assert list(spec.indices()) == wanted
    assert spec.size() == len(wanted)
    assert (spec.lowest(), spec.highest()) == (wanted[0], wanted[-1])
    again = parse_array(format_array_indices(spec.ranges, steps=True), max_index=2000)
    assert list(again.indices()) == wanted


def test_ids_pass_through_documents() -> None:
    spec = parse_array("0-9:3,20%2")
    assert decode(ArraySpec, encode(spec)) == spec
    ref = parse_job_ref("42_[0-3%2]")
    assert decode(JobRef, encode(ref)) == ref
