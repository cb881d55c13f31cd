"""The address of a node: by its name, else by Slurm's word, never one that leads only to itself."""

from __future__ import annotations

import pytest

from overspan.bridge.runtime.slurm import addresses
from overspan.bridge.runtime.slurm.addresses import AddressBook

NAMES = {
    "n1": ["10.0.0.1"],
    "debian": ["127.0.1.1"],
    "alias": ["10.0.0.9"],
    "10.0.0.7": ["10.0.0.7"],
    "six": ["::1", "fd00::6"],
}


def make(own: str, told: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[AddressBook, list[str]]:
    asked: list[str] = []

    def ask(node: str) -> str:
        asked.append(node)
        return told.get(node, "")

    monkeypatch.setattr(addresses, "resolve", lambda name: NAMES.get(name, []))
    monkeypatch.setattr(addresses, "find_own_address", lambda: "10.0.0.5")
    return AddressBook(own, ask), asked


def test_a_name_that_resolves_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    book, asked = make("n1", {}, monkeypatch)
    assert [book.find("n1"), book.find("six"), asked] == ["10.0.0.1", "fd00::6", []]


@pytest.mark.parametrize(
    ("node", "told", "address"),
    [
        ("gpu7", {"gpu7": "10.0.0.7"}, "10.0.0.7"),
        ("gpu7", {"gpu7": "alias"}, "10.0.0.9"),
        ("debian", {"debian": "10.0.0.7"}, "10.0.0.7"),
        ("debian", {"debian": "debian"}, "10.0.0.5"),
        ("debian", {}, "10.0.0.5"),
    ],
)
def test_slurm_is_asked_once(node: str, told: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    book, asked = make("debian", told, monkeypatch)
    assert [book.find(node), book.find(node)] == [address, address]
    assert asked == [node]


def test_a_node_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    book, _ = make("debian", {"gpu7": "gpu7"}, monkeypatch)
    with pytest.raises(ValueError, match="the node gpu7 has no address"):
        book.find("gpu7")
