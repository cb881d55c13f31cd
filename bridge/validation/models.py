"""Models of documents: pydantic's verdict, as what is wrong, where, what is wanted, what there is, and how to mend it.

Configuration files and adapters' settings are read with `read_model`; API bodies share its words by `add_mistake`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from overspan.bridge.validation.diagnostics import (
    Diagnostics,
    describe_value,
    nearest,
    say_choice,
    say_length,
    say_range,
    say_wanted,
)
from overspan.bridge.validation.positions import Path, Positions

Switch = Annotated[bool, Strict()]
"""true or false, not a word for them."""
Whole = Annotated[int, Strict()]
"""A whole number, not a text of digits."""
Real = Annotated[float, Strict()]
"""A number, fractions too."""

_FILE = "file"
"""The context of a validation whose input a user wrote into a file."""


class Mistake(ValueError):
    """What a validator raises that knows a remedy, or which keys below its value are wrong."""

    def __init__(self, message: str, remedy: str = "", path: Path = ()) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.path = path


class DocumentModel(BaseModel):
    """A mapping of known keys. A key without a value counts as absent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    outside: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no keys of a file: what reads it fills them in."""

    @model_validator(mode="before")
    @classmethod
    def _take_keys(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, Mapping):
            return values
        if info.context == _FILE:
            for key in sorted(cls.outside.intersection(values)):
                raise Mistake(f"{key!r} is not a key here", f"known keys: {', '.join(known_keys(cls))}", (key,))
        return {key: value for key, value in values.items() if value is not None}


def between(low: float, high: float) -> AfterValidator:
    """Bounds of a number, both of which a message names."""

    def check(value: float) -> float:
        if not low <= value <= high:
            shown = int(value) if isinstance(value, float) and value.is_integer() else value
            raise ValueError(say_range(shown, f"from {low} to {high}"))
        return value

    return AfterValidator(check)


def one_of(known: Sequence[str]) -> AfterValidator:
    """A text that is one of a few words."""

    def check(value: str) -> str:
        if value not in known:
            raise ValueError(say_choice(value, known))
        return value

    return AfterValidator(check)


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], values: Mapping[str, Any], places: Positions, base: Path = ()) -> M:
    """Validate a document; `base` is the path that messages put before its own.

    Raises InvalidRequest with all mistakes: the first in the text with its place and remedy, the others as lines.
    """
    try:
        return model.model_validate(values, context=_FILE)
    except ValidationError as error:
        found = Diagnostics()
        for details in error.errors(include_url=False):
            add_mistake(found, details, model, places, base)
        found.raise_any()
        raise


def add_mistake(
    found: Diagnostics, details: ErrorDetails, model: type[BaseModel], places: Positions, base: Path
) -> None:
    """Add one of pydantic's errors to the faults; `base` as in `read_model`."""
    # pydantic marks a wrong key of a mapping with an item of its own.
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    message, at_key = explain(details), "[key]" in details["loc"] or details["type"] == "missing"
    remedy = _find_example(model, path)
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, Mistake):
        path, remedy = (*path, *cause.path), cause.remedy or remedy
    # What is said of a mapping as a whole is looked for at its name.
    at_key = at_key or not path
    written = ".".join(map(str, (*base, *path)))
    if details["type"] == "extra_forbidden":
        known = sorted(_known_keys(model, path[:-1]))
        near = nearest(str(path[-1]), known).removeprefix("; ")
        found.add(f"unknown key {written!r}", places.key(path), f"{near} known keys: {', '.join(known)}".lstrip())
        return
    place = places.key(path) if at_key else places.value(path)
    found.add(f"{written}: {message}" if written else message, place, remedy)


_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
}
"""By the first word of pydantic's error type."""
_BOUNDS = {
    "greater_than_equal": "at least",
    "less_than_equal": "at most",
    "greater_than": "more than",
    "less_than": "less than",
}


def explain(details: ErrorDetails) -> str:
    """One mistake: what is wanted, and what there is."""
    kind, given, bounds = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "the key is missing"
    if kind in _BOUNDS:
        return say_range(given, f"{_BOUNDS[kind]} {next(iter(bounds.values()))}")
    if kind == "literal_error":
        return f"{describe_value(given)} is not {bounds['expected']}"
    if kind == "too_short":
        return f"at least {bounds['min_length']} is wanted here, not {bounds['actual_length']}"
    if kind == "too_long":
        return f"at most {bounds['max_length']} are taken here, not {bounds['actual_length']}"
    if kind == "string_too_long":
        return say_length(len(given), bounds["max_length"])
    wanted, _, reason = kind.partition("_")
    if wanted in _WANTED and reason in ("type", "parsing", "from_float", "number", "attributes_type"):
        quotes = "; put it in quotes" if wanted == "string" and isinstance(given, int | float) else ""
        return say_wanted(_WANTED[wanted], describe_value(given)) + quotes
    return str(details["msg"]).removeprefix("Value error, ")


def known_keys(model: type[BaseModel]) -> list[str]:
    """The keys of a model's mapping."""
    outside = model.outside if issubclass(model, DocumentModel) else frozenset()
    return [field.alias or name for name, field in model.model_fields.items() if name not in outside]


def _known_keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys of the mapping at a path below a model."""
    return [key for kind in _kinds_at(model, path) if _is_model(kind) for key in known_keys(kind)]


def _find_example(model: type[BaseModel], path: Path) -> str:
    """How the field at a path is written, or the nearest one around it that has an example."""
    for depth in range(len(path), 0, -1):
        for kind in _kinds_at(model, path[: depth - 1]):
            for field in _fields_of(kind, path[depth - 1]):
                if field.examples:
                    return f"write {path[depth - 1]}: {field.examples[0]}"
    return ""


def _kinds_at(model: type[BaseModel], path: Path) -> list[Any]:
    """The models, mappings and lists that can be at a path."""
    kinds: list[Any] = [model]
    for part in path:
        kinds = [inner for kind in kinds for inner in _enter(kind, part)]
    return kinds


def _enter(kind: Any, part: str | int) -> list[Any]:
    if _is_model(kind):
        return [found for field in _fields_of(kind, part) for found in _containers(field.annotation)]
    types = get_args(kind)
    # The value type of a mapping, or the item type of a list. Of a union pydantic's path has parts that are no keys.
    return _containers(types[1] if get_origin(kind) in (dict, Mapping) else types[0])


def _fields_of(kind: Any, part: str | int) -> list[FieldInfo]:
    fields = kind.model_fields if _is_model(kind) else {}
    return [field for name, field in fields.items() if part == (field.alias or name)]


def _containers(annotation: Any) -> list[Any]:
    """What of an annotation has parts: models, mappings and lists, without Annotated and None around them."""
    if _is_model(annotation) or get_origin(annotation) in (dict, Mapping, list, tuple):
        return [annotation]
    return [found for inner in get_args(annotation) for found in _containers(inner)]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
