"""A variable's value that was asked for among all others, as copies of the environment ask for it.

`tqdm` looks for `TQDM_...` so, torch and grain copy all to look at a few. That is no use of the
others: only what is done with a value is, or to keep it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NO_USE = {"__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__"}
_NO_USE |= {"__init_subclass__", "__subclasshook__", "__doc__", "__dir__", "__sizeof__"}


class LentValue(str):
    """Calls `used` whenever something is done with it."""

    used: Callable[[], object]


def lent(value: str, used: Callable[[], object]) -> LentValue:
    """That value.

    Args:
        value: of a variable.
        used: called at each use.

    """
    made = LentValue(value)
    made.used = used
    return made


def _noting(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def use(self: LentValue, *args: Any, **named: Any) -> Any:
        self.used()
        return method(self, *args, **named)

    return use


def _converting(kind: type) -> Callable[[LentValue], Any]:
    def convert(self: LentValue) -> Any:
        self.used()
        return kind(str.__str__(self))

    return convert


for _name in set(dir(str)) - _NO_USE:
    if callable(getattr(str, _name)):
        setattr(LentValue, _name, _noting(_name))
for _kind in (int, float, bool):
    setattr(LentValue, f"__{_kind.__name__}__", _converting(_kind))
LentValue.__radd__ = lambda self, other: self.used() or str.__add__(other, self)  # type: ignore[attr-defined]
