"""Names of tasks and members, and what DNS and the environment make of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model import names


@pytest.mark.parametrize("name", ["trainer", "data_server", "rollout-2", "A", "7", "_x-"])
def test_task_name(name: str) -> None:
    assert names.check_task_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "a\n", "a/b", "x-{id}", None, 7])
def test_task_name_refused(name: object) -> None:
    with pytest.raises(ValueError, match="letters, digits, '-' and '_'"):
        names.check_task_name(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "label"),
    [("trainer", "trainer"), ("Data_Server", "data-server"), ("7", "7"), ("a--b", "a--b"), ("x" * 63, "x" * 63)],
)
def test_dns_label(text: str, label: str) -> None:
    assert names.dns_label(text) == label


@pytest.mark.parametrize("text", ["", "-a", "a-", "_a", "a_", "a.b", "é", "a\n", "ſ", "x" * 64])
def test_dns_label_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        names.dns_label(text)


def test_members() -> None:
    assert names.member_name("rollout", 2) == "rollout-2"
    assert names.member_name("Data_Server", 0) == "data-server-0"
    assert names.member_host("rollout", 2, "rlhf") == "rollout-2.rlhf"
    assert names.member_host("Data_Server", 10, "My_Group") == "data-server-10.my-group"
    with pytest.raises(ValueError, match="has 64 letters"):
        names.member_name("x" * 61, 10)
    assert len(names.member_name("x" * 61, 9)) == 63


@pytest.mark.parametrize(
    ("task", "variable"),
    [("trainer", "TRAINER"), ("data-server", "DATA_SERVER"), ("a_b-2", "A_B_2"), ("a.b", "A_B"), ("ß", "_")],
)
def test_env_name(task: str, variable: str) -> None:
    assert names.env_name(task) == variable


def test_collisions() -> None:
    assert names.find_collisions(["a", "b", "a-b"]) == []
    assert names.find_collisions(["a_b", "c", "A-B", "a-b", "C"]) == [("a_b", "A-B", "a-b"), ("c", "C")]
    assert names.find_collisions(["x", "x"]) == [("x", "x")]


_TASK_NAMES = st.text(alphabet="abAB01-_", min_size=1, max_size=6)


@given(st.lists(_TASK_NAMES, max_size=8, unique=True))
def test_collisions_are_exactly_the_shared_names(tasks: list[str]) -> None:
    """Names that do not clash have host names and variables of their own, and no others."""
    clashing = {name for clash in names.find_collisions(tasks) for name in clash}
    free = [name for name in tasks if name not in clashing]
    assert len({names.env_name(name) for name in free}) == len(free)
    assert all(
        any(names.env_name(name) == names.env_name(other) for other in tasks if other != name) for name in clashing
    )


def test_fill_name() -> None:
    assert names.fill_name("x-{id}", 42) == "x-42"
    assert names.fill_name("plain", 42) == "plain"
    for pattern in ("x-{ID}", "x-{", "}{id}", "{{id}}"):
        with pytest.raises(ValueError, match=r"only \{id\} is filled in"):
            names.fill_name(pattern, 42)
