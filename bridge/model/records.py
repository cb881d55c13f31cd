"""Frozen dataclasses and named tuples for what runs beside the work, which defines 130 of them at each start.

The standard library writes the methods of each class as text and compiles it there and then: more than half of a
supervisor's start. Here all classes share their methods, except the one that makes an object: it is compiled with
the first object, and most classes have none in most processes. In all else they are as the standard library's, which
type checkers see in their place; `dataclasses.replace`, `fields` and `asdict` take them.
"""

from __future__ import annotations

TYPE_CHECKING = False
NO_DEFAULT = object()
"""The default of a field that has to be given."""

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import Any, Callable, Optional
    from typing import NamedTuple as NamedTuple
else:
    # The getter that named tuples of the standard library have; in C where there is one.
    from collections import _tuplegetter
    from operator import attrgetter

    def dataclass(*, frozen: bool, slots: bool = False) -> Callable[[type], type]:
        """As `dataclasses.dataclass(frozen=True)`, of a class without bases.

        `slots` is for a class of more than 30 fields with many objects: they share no keys, and each has 1 KB of them.
        """
        if not frozen:
            raise TypeError("a dataclass of this module is frozen; take the one of dataclasses for another")
        return _define_slotted if slots else _define_dataclass

    def field(*, default_factory: Callable[[], Any]) -> Any:
        """As `dataclasses.field`, for a default that is made for each object."""
        return _Factory(default_factory)

    def replace(record: Any, **changes: Any) -> Any:
        """As `dataclasses.replace`, for frozen dataclasses of this module."""
        kind = type(record)
        names = kind.__match_args__
        if len(names) == 1:
            return kind(**changes) if changes else kind(record._record_values(record))
        values = dict(zip(names, record._record_values(record)))
        values.update(changes)
        return kind(**values)

    def _define_slotted(kind: type) -> type:
        """The class again, with a slot for each field; that it has them costs its definition 20 microseconds."""
        named = _define_dataclass(kind)
        hidden = {"__dict__", "__weakref__", *named.__match_args__}
        body = {name: value for name, value in named.__dict__.items() if name not in hidden}
        slotted = type(kind.__name__, (), {**body, "__slots__": named.__match_args__, "__reduce__": _reduce})
        slotted.__qualname__ = kind.__qualname__
        _UNCOMPILED[slotted] = _UNCOMPILED.pop(named)

        def __init__(self: Any, *values: Any, **given: Any) -> None:
            prepare(slotted)
            slotted.__init__(self, *values, **given)

        slotted.__init__ = __init__
        return slotted

    def _reduce(self: Any) -> Any:
        return type(self), self._record_values(self)

    def _define_dataclass(kind: type) -> type:
        if kind.__bases__ != (object,):
            raise TypeError(f"{kind.__name__} has a base; a dataclass of this module has none")
        names = tuple(kind.__annotations__)
        defaults = {name: kind.__dict__[name] for name in names if name in kind.__dict__}
        for name, default in defaults.items():
            if type(default) is _Factory:
                delattr(kind, name)

        def __init__(self: Any, *values: Any, **named: Any) -> None:
            prepare(kind)
            kind.__init__(self, *values, **named)

        kind.__match_args__ = names
        kind._record_defaults = defaults
        kind._record_values = attrgetter(*names)
        kind.__dataclass_fields__ = _FIELDS
        kind.__init__ = __init__
        _UNCOMPILED[kind] = _compile_init
        for name, method in _DATACLASS_METHODS.items():
            if name not in kind.__dict__ or (name == "__hash__" and kind.__hash__ is None):
                setattr(kind, name, method)
        return kind

    def _compile_init(kind: type) -> None:
        """Give a class the initializer that `dataclasses` writes."""
        scope, parameters, lines = {"_set": object.__setattr__, "NO_DEFAULT": NO_DEFAULT}, [], []
        for name in kind.__match_args__:
            parameter, value = name, name
            if name in kind._record_defaults:
                default = kind._record_defaults[name]
                parameter = f"{name}=_default_{name}"
                scope[f"_default_{name}"] = default
                if type(default) is _Factory:
                    scope[f"_make_{name}"] = default.make
                    parameter, value = f"{name}=NO_DEFAULT", f"_make_{name}() if {name} is NO_DEFAULT else {name}"
            parameters.append(parameter)
            lines.append(f" _set(self, {name!r}, {value})\n")
        if hasattr(kind, "__post_init__"):
            lines.append(" self.__post_init__()\n")
        exec(f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines)}", scope)
        scope["__init__"].__qualname__ = f"{kind.__qualname__}.__init__"
        kind.__init__ = scope["__init__"]

    class _Fields:
        """`__dataclass_fields__` of a class, made on first use."""

        def __get__(self, record: Any, kind: type) -> dict[str, Any]:
            import dataclasses

            defaults = {
                name: dataclasses.field(default_factory=default.make) if type(default) is _Factory else default
                for name, default in kind._record_defaults.items()
            }
            body = {"__doc__": "", "__module__": kind.__module__, "__annotations__": kind.__annotations__, **defaults}
            like = dataclasses.dataclass(init=False, repr=False, eq=False)(type(kind.__name__, (), body))
            kind.__dataclass_fields__ = like.__dataclass_fields__
            return kind.__dataclass_fields__

    _FIELDS = _Fields()

    def _equal(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._record_values(self) == self._record_values(other)

    def _hash(self: Any) -> int:
        return hash(self._record_values(self))

    def _describe(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{self.__class__.__qualname__}({values})"

    def _refuse(self: Any, name: str, *value: Any) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")

    _DATACLASS_METHODS = {
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _describe,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }

    class _NamedTupleMaker(type):
        """Makes a subclass of `tuple` of each class that names NamedTuple as its base."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            kind = type(name, (tuple,), {**_NAMED_TUPLE_METHODS, **body, "__slots__": ()})
            names = tuple(kind.__annotations__)

            def __new__(cls: type, *values: Any, **named: Any) -> Any:
                prepare(kind)
                return kind.__new__(cls, *values, **named)

            kind._fields = kind.__match_args__ = names
            kind._field_defaults = {name: body[name] for name in names if name in body}
            kind.__new__ = staticmethod(__new__)
            _UNCOMPILED[kind] = _compile_new
            for place, name in enumerate(names):
                setattr(kind, name, _tuplegetter(place, ""))
            return kind

    class NamedTuple(metaclass=_NamedTupleMaker):
        """As `typing.NamedTuple`."""

    def _compile_new(kind: type) -> None:
        """Give a class the constructor that `collections.namedtuple` writes."""
        names = ", ".join(kind._fields)
        new = eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {"_new": tuple.__new__, "__builtins__": {}})
        new.__name__, new.__qualname__ = "__new__", f"{kind.__qualname__}.__new__"
        new.__defaults__ = tuple(kind._field_defaults.values())
        kind.__new__ = staticmethod(new)

    def _make(cls: type, values: Any) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Any, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _unpack(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    _NAMED_TUPLE_METHODS = {
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__repr__": _describe,
        "__getnewargs__": _unpack,
    }


class _Factory:
    """A default that is made for each object."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


_UNCOMPILED: dict[type, Callable[[type], None]] = {}
"""The classes of this module that have made no object yet, and what gives each its way to make one."""


def prepare(*kinds: type) -> None:
    """Compile now what the first object of each class needs: processes that are forked later share it."""
    for kind in kinds:
        give = _UNCOMPILED.get(kind)
        if give is not None:
            give(kind)
            # Not before: another thread may be here for the same class.
            _UNCOMPILED.pop(kind, None)


def prepare_all() -> None:
    """As `prepare`, for all classes there are."""
    prepare(*_UNCOMPILED)


def is_dataclass(kind: type) -> bool:
    """Whether a class is a dataclass, of this module or of the standard library."""
    return any("__dataclass_fields__" in base.__dict__ for base in kind.__mro__)


def list_fields(kind: type) -> dict[str, Any]:
    """The fields of a dataclass, of this module or of the standard library, each with its default.

    Of a default that is made for each object it is what is made; NO_DEFAULT where there is none.
    """
    defaults: Optional[dict[str, Any]] = kind.__dict__.get("_record_defaults")
    if defaults is None:
        return _list_standard_fields(kind)
    names: tuple[str, ...] = kind.__dict__["__match_args__"]
    return {name: _make_default(defaults.get(name, NO_DEFAULT)) for name in names}


def _make_default(default: Any) -> Any:
    return default.make() if type(default) is _Factory else default


def _list_standard_fields(kind: type) -> dict[str, Any]:
    from dataclasses import MISSING, fields

    found = {}
    for each in fields(kind):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        found[each.name] = NO_DEFAULT if default is MISSING else default
    return found
