"""Models of documents: every kind of mistake in words, with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import AfterValidator, Field, model_validator

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.validation.diagnostics import describe_value
from overspan.bridge.validation.models import (
    DocumentModel,
    Mistake,
    Real,
    Switch,
    Whole,
    between,
    known_keys,
    one_of,
    read_model,
)
from overspan.bridge.validation.positions import NOWHERE, Positions
from overspan.bridge.validation.yaml_documents import read_table
from overspan.bridge.validation.yaml_nodes import plain


def _refuse(value: str) -> str:
    raise ValueError(f"{value!r} is not a place")


class Part(DocumentModel):
    """A part of the document."""

    outside: ClassVar = frozenset({"name"})

    name: str = ""
    size: Annotated[Whole, between(1, 9)] = 1
    kind: Annotated[str, one_of(("big", "small"))] = "big"

    @model_validator(mode="after")
    def _check(self) -> Part:
        if self.size == 7:
            raise Mistake("seven is taken", "write another number", ("size",))
        return self


class Sheet(DocumentModel):
    """The document."""

    part: Part = Part()
    parts: dict[str, Part] = Field(default={}, examples=["{a: {size: 2}}"])
    listed: tuple[Part, ...] = Field(default=(), max_length=2)
    deep: dict[str, list[Part] | None] | None = None
    on: Switch = False
    share: Annotated[Real, Field(gt=0)] = 0.5
    word: str = Field(default="", max_length=5)
    mode: Literal["fast", "slow"] = "fast"
    place: Annotated[str, AfterValidator(_refuse)] = ""
    free: Mapping[str, Any] = Field(default={})
    either: list[Part] | dict[str, Part] | None = None
    must: int = Field(default=0, alias="needed")


def read(text: str) -> Sheet:
    table = read_table(text, "f")
    return read_model(Sheet, plain(table), Positions((table,)), ("top",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("on: yes", "f:1:5: top.on: true or false is wanted here, not the text 'yes'"),
        ("on: 1", "f:1:5: top.on: true or false is wanted here, not 1"),
        ("part: {size: '3'}", "f:1:14: top.part.size: a whole number is wanted here, not the text '3'"),
        ("part: {size: 2.5}", "f:1:14: top.part.size: a whole number is wanted here, not 2.5"),
        ("part: {size: true}", "f:1:14: top.part.size: a whole number is wanted here, not true"),
        ("part: {size: 12}", "f:1:14: top.part.size: 12 is out of range; it must be from 1 to 9"),
        ("part: {size: 7}", "f:1:14: top.part.size: seven is taken\n  write another number"),
        ("part: {kind: bigg}", "top.part.kind: 'bigg' is none of big, small; did you mean 'big'?"),
        ("part: {siz: 1}", "f:1:8: unknown key 'top.part.siz'\n  did you mean 'size'? known keys: kind, size"),
        ("part: {name: x}", "f:1:14: top.part.name: 'name' is not a key here\n  known keys: size, kind"),
        ("part: [1]", "f:1:7: top.part: a mapping is wanted here, not a list"),
        (
            "parts: {a: {siz: 1}}",
            "f:1:13: unknown key 'top.parts.a.siz'\n  did you mean 'size'? known keys: kind, size",
        ),
        ("parts: 3", "f:1:8: top.parts: a mapping is wanted here, not 3\n  write parts: {a: {size: 2}}"),
        ("listed: [{siz: 1}]", "f:1:11: unknown key 'top.listed.0.siz'\n  did you mean 'size'? known keys: kind, size"),
        ("listed: {a: 1}", "top.listed: a list is wanted here, not a mapping"),
        ("listed: [{}, {}, {}]", "top.listed: at most 2 are taken here, not 3"),
        ("deep: {x: [{siz: 1}]}", "unknown key 'top.deep.x.0.siz'\n  did you mean 'size'? known keys: kind, size"),
        ("share: 0", "f:1:8: top.share: 0 is out of range; it must be more than 0"),
        ("share: much", "top.share: a number is wanted here, not the text 'much'"),
        ("word: 12", "f:1:7: top.word: text is wanted here, not 12; put it in quotes"),
        ("word: abcdef", "top.word: the text has 6 characters; the limit is 5"),
        ("mode: idle", "top.mode: the text 'idle' is not 'fast' or 'slow'"),
        ("place: here", "f:1:8: top.place: 'here' is not a place"),
        ("either: [{siz: 1}]", "unknown key 'top.either."),
        ("either: {a: {size: 12}}", "12 is out of range"),
        ("nedeed: 1", "f:1:1: unknown key 'top.nedeed'\n  did you mean 'needed'?"),
        (f"on: {'x' * 9999}", f"not the text '{'x' * 64}...'"),
    ],
)
def test_what_is_wrong_where_what_is_wanted_and_what_there_is(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(text)
    assert message in str(caught.value)


def test_a_key_without_a_value_is_absent() -> None:
    assert read("on: \npart: {size: }\nneeded: 4\n") == Sheet(needed=4)


def test_what_a_file_may_not_say_can_be_said_in_code() -> None:
    assert Part(name="x").name == "x"
    assert known_keys(Part) == ["size", "kind"]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.5, 10**30])
def test_bounds_hold_for_numbers_that_no_file_can_write(value: float) -> None:
    class Bounded(DocumentModel):
        share: Annotated[Real, between(0, 1)] = 0

    with pytest.raises(InvalidRequest, match="is out of range; it must be from 0 to 1"):
        read_model(Bounded, {"share": value}, NOWHERE)


def test_a_missing_key_and_a_document_without_a_file() -> None:
    class Needy(DocumentModel):
        path: str

    with pytest.raises(InvalidRequest) as caught:
        read_model(Needy, {}, NOWHERE)
    assert (str(caught.value), caught.value.place) == ("path: the key is missing", None)


def test_all_mistakes_are_told_the_first_in_the_text_in_front() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read("word: 1\non: 3\nparts: {a: {size: 0}}\n")
    lines = caught.value.message.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["top.word:", "f:2:5:", "f:3:19:"]


def test_of_two_files_the_first_that_has_a_key_gives_its_place() -> None:
    user, site = read_table("clusters: {a: {x: 1}}\n", "user"), read_table("clusters:\n  a: {x: 2, y: 3}\n", "site")
    places = Positions((user, site)).below(("clusters", "a"))
    assert [str(places.value((key,))) for key in "xy"] == ["user:1:19", "site:2:16"]
    assert [str(places.key((key,))) for key in "xyz"] == ["user:1:16", "site:2:13", "user:1:12"]
    assert Positions((user, site)).below(("clusters", "b")).key(()) is None


@pytest.mark.parametrize(
    ("value", "words"), [(None, "nothing"), ({}, "a mapping"), ((), "a list"), (False, "false"), ("a", "the text 'a'")]
)
def test_values_in_words(value: Any, words: str) -> None:
    assert describe_value(value) == words
