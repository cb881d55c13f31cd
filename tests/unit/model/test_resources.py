"""What one node needs: SkyPilot's forms and Slurm's, and exact fractions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.resources import (
    Cpus,
    Gpus,
    Gres,
    NodeNeed,
    Resources,
    gres_gpus,
    parse_accelerators,
    parse_cpus,
    parse_gpu_counts,
    parse_gres,
)


@pytest.mark.parametrize(
    ("value", "cpus"),
    [(4, Cpus(4)), ("4", Cpus(4)), ("4+", Cpus(4, True)), (0.5, Cpus(0.5)), ("0.5+", Cpus(0.5, True))],
)
def test_cpus(value: str | int | float, cpus: Cpus) -> None:
    assert parse_cpus(value) == cpus


@pytest.mark.parametrize("value", ["", "+", "4x", "-4", -4, 0, "0", "0.0001", True, None, float("nan"), float("inf")])
def test_cpus_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a number of CPUs"):
        parse_cpus(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "alternatives"),
    [
        (None, ()),
        ("H100", (Gpus(1, "H100"),)),
        ("H100:8", (Gpus(8, "H100"),)),
        ("H100:0.5", (Gpus(0.5, "H100"),)),
        ("A100-80GB:4", (Gpus(4, "A100-80GB"),)),
        ({"H100": 8}, (Gpus(8, "H100"),)),
        ({"H100": 0.5}, (Gpus(0.5, "H100"),)),
        ({"H100:8": None, "A100:8": None}, (Gpus(8, "H100"), Gpus(8, "A100"))),
        ({"H100": 8, "A100": 8}, (Gpus(8, "H100"), Gpus(8, "A100"))),
        (["H100:8", "A100"], (Gpus(8, "H100"), Gpus(1, "A100"))),
        ([{"H100": 8}, "A100:4"], (Gpus(8, "H100"), Gpus(4, "A100"))),
        ({"H100:8", "A100:8"}, (Gpus(8, "A100"), Gpus(8, "H100"))),
        (["H100:8", "H100:8"], (Gpus(8, "H100"),)),
        (2, (Gpus(2),)),
        ("2", (Gpus(2),)),
        (0.25, (Gpus(0.25),)),
        ("gpu:2", (Gpus(2),)),
        ("GPU", (Gpus(1),)),
    ],
)
def test_accelerators(value: object, alternatives: tuple[Gpus, ...]) -> None:
    assert parse_accelerators(value) == alternatives


@pytest.mark.parametrize(
    "value",
    ["", "H100:", ":8", "H100:0", "H100:-1", "H100:x", "H100:8:2", "H 100", [], {}, 0, -1, True, [None], [["H100"]],
     {"H100": True}, "H100:0.0001"],
)  # fmt: skip
def test_accelerators_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"accelerator|number of GPUs"):
        parse_accelerators(value)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("gpu", (Gres("gpu"),)),
        ("gpu:2", (Gres("gpu", "", 2),)),
        ("gpu:a100", (Gres("gpu", "a100", 1),)),
        ("gpu:a100:2", (Gres("gpu", "a100", 2),)),
        ("gpu:a100:2,nvme:4K,shard", (Gres("gpu", "a100", 2), Gres("nvme", "", 4096), Gres("shard"))),
        ("gpu:80gb:1", (Gres("gpu", "80gb", 1),)),
        ("gpu:0", ()),
        ("none", ()),
        ("NONE", ()),
    ],
)
def test_gres(text: str, entries: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == entries


@pytest.mark.parametrize("text", ["", ",", "gpu,", ":2", "gpu:", "gpu::2", "gpu:a:b:2", "gpu:0.5", "gpu:-1", "g pu:1"])
def test_gres_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a generic resource"):
        parse_gres(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("2", (Gpus(2),)),
        ("a100:2", (Gpus(2, "a100"),)),
        ("a100", (Gpus(1, "a100"),)),
        ("a100:2,v100:1", (Gpus(2, "a100"), Gpus(1, "v100"))),
        ("0", ()),
    ],
)
def test_gpu_counts(text: str, gpus: tuple[Gpus, ...]) -> None:
    assert parse_gpu_counts(text) == gpus


@pytest.mark.parametrize("text", ["", "a100:", ":2", "a100:0.5", "-1", "a:b:2", "2,"])
def test_gpu_counts_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of GPUs"):
        parse_gpu_counts(text)


def test_gres_parts_gpus_from_the_rest() -> None:
    gpus, rest = gres_gpus(parse_gres("gpu:a100:2,nvme:1,gpu:v100"))
    assert gpus == (Gpus(2, "a100"), Gpus(1, "v100"))
    assert rest == (Gres("nvme", "", 1),)


@pytest.mark.parametrize("count", [0, -1, 0.0001, float("nan"), float("inf")])
def test_gpus_refused(count: float) -> None:
    with pytest.raises(ValueError, match="is not a number of GPUs"):
        Gpus(count)


def test_thirds_of_a_gpu_add_up() -> None:
    third = Gpus(1 / 3, "H100")
    assert third == Gpus(0.333, "H100")
    assert third.milli * 3 == 999
    free = 1000
    for _ in range(3):
        free -= third.milli
    for _ in range(3):
        free += third.milli
    assert free == 1000


@pytest.mark.parametrize(
    ("gpus", "text"), [(Gpus(8, "H100"), "H100:8"), (Gpus(0.5, "H100"), "H100:0.5"), (Gpus(2), "2")]
)
def test_gpus_as_text(gpus: Gpus, text: str) -> None:
    assert str(gpus) == text


@given(
    st.integers(1, 10**8).map(lambda milli: milli / 1000),
    st.from_regex(r"[A-Za-z][A-Za-z0-9.-]{0,8}", fullmatch=True).filter(lambda kind: kind.lower() != "gpu"),
)
def test_gpus_read_back(count: float, kind: str) -> None:
    assert parse_accelerators(str(Gpus(count, kind))) == (Gpus(count, kind),)
    assert parse_accelerators({kind: count}) == (Gpus(count, kind),)


@given(
    st.lists(
        st.builds(Gres, st.sampled_from(["gpu", "nvme"]), st.sampled_from(["", "a100", "80gb"]), st.integers(1, 99)),
        min_size=1,
    )
)
def test_gres_read_back(entries: list[Gres]) -> None:
    assert parse_gres(",".join(map(str, entries))) == tuple(entries)


def test_need_of_one_node() -> None:
    assert Resources().need() == NodeNeed(1000)
    assert Resources().need(default_cpus=2) == NodeNeed(2000)
    assert Resources(cpus=0.5, memory_mib=0).need() == NodeNeed(500, 0)
    wanted = Resources(cpus=4, memory_mib_per_cpu=2048, gpus=parse_accelerators(["H100:8", "A100:0.5"]))
    assert wanted.needs() == (NodeNeed(4000, 8192, 8000, "H100"), NodeNeed(4000, 8192, 500, "A100"))
    with pytest.raises(IndexError):
        wanted.need(2)
    with pytest.raises(IndexError):
        Resources().need(1)


def test_memory_per_cpu_rounds_up() -> None:
    assert Resources(cpus=1.5, memory_mib_per_cpu=1001).need().memory_mib == 1502


def test_other_gres_are_needed_with_every_alternative() -> None:
    disk = parse_gres("nvme:2")
    wanted = Resources(gpus=parse_accelerators(["H100", "A100"]), gres=disk)
    assert [need.gres for need in wanted.needs()] == [disk, disk]


@pytest.mark.parametrize(
    "values", [{"cpus": 0}, {"cpus": -1}, {"memory_mib": -1}, {"memory_mib": 1, "memory_mib_per_cpu": 1}]
)
def test_resources_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"CPU|memory"):
        Resources(**values)  # type: ignore[arg-type]


def test_resources_pass_through_documents() -> None:
    wanted = Resources(
        cpus=1.5, memory_mib=0, gpus=(Gpus(0.5, "H100"), Gpus(1)), gres=parse_gres("nvme:2"), cpus_at_least=True
    )
    assert decode(Resources, encode(wanted)) == wanted
