"""Base classes for values and records with named fields, quicker to define than dataclasses.

They are used like dataclasses, also by a type checker. Making a real dataclass takes some 0.4 ms,
and importing `dataclasses` takes longer than all other imports of an agent.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: bool):  # noqa: D103
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Value:
    """Base class of immutable values, whose fields are the annotations of the subclass."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        cls._fields = _list_annotations(cls)
        setattr(cls, "__match_args__", cls._fields)  # noqa: B010, a checker knows its own

    if not TYPE_CHECKING:

        def __init__(self, *args: object, **kwargs: object) -> None:
            if len(args) == len(self._fields) and not kwargs:  # as a decoder calls it
                self.__dict__.update(zip(self._fields, args))
                return
            given = dict(zip(self._fields, args))
            if len(args) > len(self._fields) or not given.keys().isdisjoint(kwargs):
                raise TypeError(f"{type(self).__name__}: too many arguments")
            given.update(kwargs)
            for name in self._fields:
                if name not in given:
                    try:
                        given[name] = getattr(type(self), name)
                    except AttributeError:
                        raise TypeError(f"{type(self).__name__}: {name} is missing") from None
            if len(given) > len(self._fields):
                raise TypeError(f"{type(self).__name__}: no such field: {list(given)}")
            self.__dict__.update(given)

        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(f"{type(self).__name__} is immutable")

    def copy_with(self, **changes: object) -> Self:
        """Return a copy with the given values in the named fields."""
        return type(self)(**{**{name: getattr(self, name) for name in self._fields}, **changes})

    def _list_values(self) -> list[object]:
        return [getattr(self, name) for name in self._fields]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and (type(self), self._list_values()) == (
            type(other),
            other._list_values(),
        )

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._list_values())))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({shown})"


class _Factory:
    """Function that makes a field's default value for each new object."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], T]) -> T:
    """Declare a field of a Changing class; `default_factory` makes each object's default."""
    made: Any = _Factory(default_factory)
    return made  # type: ignore[no-any-return]


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class Changing:
    """Base class of mutable objects, whose fields are the annotations of the subclass.

    Objects are compared by identity.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, object]] = {}
    _made: ClassVar[dict[str, _Factory]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *_list_annotations(cls))
        given = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
        made = {name: value for name, value in given.items() if isinstance(value, _Factory)}
        cls._made = {**cls._made, **made}
        cls._defaults = {**cls._defaults, **{name: given[name] for name in given.keys() - made}}

    if not TYPE_CHECKING:

        def __init__(self, *args: object, **kwargs: object) -> None:
            values = self.__dict__
            values.update(self._defaults)
            for name, made in self._made.items():
                values[name] = made.make()
            values.update(zip(self._fields, args), **kwargs)
            if len(values) != len(self._fields) or len(args) > len(self._fields):
                raise TypeError(f"{type(self).__name__}: not its fields: {list(values)}")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({shown})"


def _list_annotations(cls: type) -> tuple[str, ...]:
    """Return the names that a class annotates, without its base classes'."""
    if sys.version_info >= (3, 14) and "__annotate_func__" in cls.__dict__:
        # The module's annotations are evaluated when they are asked for.
        import annotationlib

        return tuple(annotationlib.get_annotations(cls, format=annotationlib.Format.STRING))
    return tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063
