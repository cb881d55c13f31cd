"""Frozen dataclasses to JSON documents and back, for the store, the journal's plan and the API.

A value at its default is left out, so documents stay small and a new field with a default is readable from an old
document; an unknown key of a newer version is dropped. Supported: dataclasses, NamedTuples, enums, Optional,
tuples of one kind or of several, mappings with text keys and JSON's own scalars.
"""

from __future__ import annotations

import sys
import types
from _thread import RLock
from collections import deque
from collections.abc import Collection
from enum import Enum
from typing import Any, Callable, TypeVar, Union, get_args, get_origin, get_type_hints

from overspan.bridge.model.records import is_dataclass, list_fields

T = TypeVar("T")
Decoder = Callable[[Any], Any]
Encoder = Callable[[Any], Any]

# `X | None` is of another class than Optional[X] where Python has it.
_UNIONS = (Union, getattr(types, "UnionType", Union))
_decoders: dict[Any, Decoder] = {}
_unfinished: dict[Any, Decoder] = {}
"""Those of the class that is being built, and of its parts: no other thread may call them yet."""
_building = RLock()
_encoders: dict[type, Encoder] = {}
_PLAIN = frozenset((str, int, float, bool, type(None)))
_shared: deque[dict[str, str]] = deque(maxlen=4)
"""The mappings of texts that were shared last."""


def encode(value: Any) -> Any:
    """The value as JSON data."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    encoder = _encoders.get(kind)
    if encoder is None:
        encoder = _encoders[kind] = _choose_encoder(kind)
    return encoder(value)


def decode(kind: type[T], document: Any) -> T:
    """The value of that class from JSON data; ValueError when it does not fit."""
    try:
        result: T = _decoder(kind)(document)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None
    return result


def share_texts(texts: Any) -> dict[str, str]:
    """A mapping with the same texts, each of which is one object in all mappings; not to be changed.

    Jobs submitted from one shell carry the same variables, which are most of the memory that a job takes and of the
    time to read it: one that equals a mapping shared lately is that mapping.
    """
    # A copy: another thread may add one meanwhile.
    for known in tuple(_shared):
        if known == texts:
            return known
    made = {_share(key): _share(text) for key, text in texts.items()}
    _shared.appendleft(made)
    return made


def _share(text: str) -> str:
    return sys.intern(text) if type(text) is str else text


def prepare(kind: type) -> None:
    """Make now what the first `decode` of a class makes: a process that is forked later shares it."""
    _decoder(kind)


def _choose_encoder(kind: type) -> Encoder:
    if issubclass(kind, Enum):
        return lambda value: value.value
    if is_dataclass(kind):
        return make_encoder(kind)
    if issubclass(kind, (tuple, list)):
        return lambda value: [encode(item) for item in value]
    if issubclass(kind, dict):
        return lambda value: {str(key): encode(item) for key, item in value.items()}
    raise TypeError(f"cannot encode {kind.__name__}")


def make_encoder(kind: type, without: Collection[str] = ()) -> Encoder:
    """What makes JSON data of the objects of a dataclass, without the fields of these names."""
    fields = [each for each in list_fields(kind).items() if each[0] not in without]

    def encode_fields(value: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, default in fields:
            item = getattr(value, name)
            if item is not default and item != default:
                document[name] = item if type(item) in _PLAIN else encode(item)
        return document

    return encode_fields


def _decoder(kind: Any) -> Decoder:
    found = _decoders.get(kind)
    if found is None:
        with _building:
            found = _decoders.get(kind) or _unfinished.get(kind) or _make(kind)
    return found


def _make(kind: Any) -> Decoder:
    whole = not _unfinished
    # Registered before it is built, so that a class may refer to itself.
    _unfinished[kind] = lambda document: _decoders[kind](document)
    try:
        found = _unfinished[kind] = _build(kind)
        if whole:
            _decoders.update(_unfinished)
    finally:
        if whole:
            _unfinished.clear()
    return found


def _build(kind: Any) -> Decoder:
    origin = get_origin(kind)
    if origin in _UNIONS:
        inner = _decoder(next(arg for arg in get_args(kind) if arg is not type(None)))
        return lambda document: None if document is None else inner(document)
    if origin is tuple:
        return _build_tuple(get_args(kind))
    if origin is not None and isinstance(origin, type) and issubclass(origin, _mapping()):
        if get_args(kind) == (str, str):
            return share_texts
        item = _decoder(get_args(kind)[1])
        return lambda document: {key: item(value) for key, value in document.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and is_dataclass(kind):
        return _build_fields(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        parts = [_decoder(hint) for hint in get_type_hints(kind).values()]
        return lambda document: kind(*(part(value) for part, value in zip(parts, document)))
    return _plain


def _build_tuple(arguments: tuple[Any, ...]) -> Decoder:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _decoder(arguments[0])
        return lambda document: tuple(map(item, document))
    parts = [_decoder(argument) for argument in arguments]
    return lambda document: tuple(part(value) for part, value in zip(parts, document))


def _build_fields(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    parts = {name: _decoder(hints[name]) for name in list_fields(kind)}

    def build(document: Any) -> Any:
        if type(document) is kind:
            # A part that was read before, such as a spec that several jobs share.
            return document
        return kind(**{name: parts[name](value) for name, value in document.items() if name in parts})

    return build


def _plain(document: Any) -> Any:
    return document


def _mapping() -> type:
    from collections.abc import Mapping

    return Mapping
