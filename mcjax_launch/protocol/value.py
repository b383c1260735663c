"""Immutable values that are quick to make: the classes themselves, at every start.

They are dataclasses to a type checker and to their users. Making a real one takes some 0.4 ms, and
importing `dataclasses` longer than all else that an agent imports.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from typing import ClassVar, dataclass_transform
else:

    def dataclass_transform(**_: bool):  # noqa: D103
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Value:
    """An immutable value with the fields that a subclass annotates, in that order."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063, nor inspect
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

    def _values(self) -> list[object]:
        return [getattr(self, name) for name in self._fields]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and (type(self), self._values()) == (
            type(other),
            other._values(),
        )

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._values())))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({shown})"
