"""Host lists: Slurm's notation, cross-checked with ClusterShell."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.slurm.hostlists import compress, count, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("n[1-3,07-09],a", ["n1", "n2", "n3", "n07", "n08", "n09", "a"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[3,1,3]", ["n3", "n1", "n3"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("r[1-2]n[0-1]-ib", ["r1n0-ib", "r1n1-ib", "r2n0-ib", "r2n1-ib"]),
        ("[1-2]", ["1", "2"]),
        ("b,a,b", ["b", "a", "b"]),
        ("a b\tc\nd", ["a", "b", "c", "d"]),
        ("a,,b,", ["a", "b"]),
        ("node-1.example.org", ["node-1.example.org"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names
    assert count(text) == len(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n[1-3", "character 2 of the host list is never closed"),
        ("n1-3]", "']' at character 5"),
        ("n[3-1]", "'3-1' at character 3 of the host list runs backwards"),
        ("n[1,x]", "'x' at character 5 of the host list is not a number"),
        ("n[]", "'' at character 3"),
        ("n[1,]", "'' at character 5"),
        ("n[1-2-3]", "'1-2-3' at character 3"),
        ("n[0-8/2]", "'0-8/2' at character 3"),
        ("n[1[2]]", "'1[2' at character 3"),
        ("n[-1]", "'-1' at character 3"),
        ("n[٣]", "at character 3"),
        ("n[" + "9" * 5000 + "]", "character 3 of the host list is too long"),
    ],
)
def test_errors_have_a_position(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        expand(text)
    assert message in str(caught.value)


def test_bombs_are_refused_before_they_are_made() -> None:
    bomb = "n[0-999999]" * 30
    assert count(bomb) == 10**180
    with pytest.raises(ValueError, match="at most 65536 are allowed"):
        expand(bomb)
    with pytest.raises(ValueError, match="names 65537 hosts"):
        expand("n[1-65537]")
    assert len(expand("n[1-65536]")) == 65_536
    with pytest.raises(ValueError, match="at most 2"):
        expand("a,b,c", limit=2)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["n1"], "n1"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1", "n3"], "n[1,3]"),
        (["n3", "n1", "n2"], "n[3,1-2]"),
        (["n1", "n1"], "n[1,1]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n9", "n010"], "n[9,010]"),
        (["n1", "a", "n2"], "n1,a,n2"),
        (["n1", "m2"], "n1,m2"),
        (["r1n0", "r1n1", "r2n0"], "r1n[0-1],r2n0"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
        (["1", "2"], "[1-2]"),
        (["trainer-0", "trainer-1", "rollout-0"], "trainer-[0-1],rollout-0"),
    ],
)
def test_compress(names: list[str], text: str) -> None:
    assert compress(names) == text


@pytest.mark.parametrize("name", ["", "a,b", "a b", "n[1]", "a]"])
def test_compress_refuses_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="is not a host name"):
        compress(["ok", name])


_STEMS = st.sampled_from(["n", "node-", "r1n", "gpu.a", ""])
_NUMBERED = st.builds(
    lambda stem, number, width: f"{stem}{number:0{width}d}", _STEMS, st.integers(0, 130), st.integers(1, 4)
)
_NAMES = st.lists(_NUMBERED | st.sampled_from(["login", "n1-ib", "n" + "9" * 30]), max_size=40)


@given(_NAMES)
def test_round_trip_keeps_order_and_duplicates(names: list[str]) -> None:
    text = compress(names)
    assert expand(text) == names
    assert count(text) == len(names)


# ClusterShell has no names of digits alone.
_FOREIGN = st.lists(_NUMBERED.filter(lambda name: not name.isdigit()) | st.just("login"), max_size=40)


@given(_FOREIGN)
def test_clustershell_reads_what_compress_writes(names: list[str]) -> None:
    assert set(NodeSet(compress(names))) == set(names)


@given(_FOREIGN)
def test_expand_reads_what_clustershell_writes(names: list[str]) -> None:
    foreign = NodeSet()
    for name in names:
        foreign.add(name)
    assert sorted(expand(str(foreign))) == sorted(set(names))


@given(st.text(alphabet="n[]0123-, ", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        total = count(text)
    except ValueError as error:
        assert "host list" in str(error)
    else:
        if total <= 1000:
            assert len(expand(text)) == total
