"""Stand-in for a function, called in its place, that runs code before each call."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class CallableProxy:
    """Replacement for a function such as `sys.exit` that calls `prepare` before the original.

    Like a built-in function, and unlike a Python function, it does not become a method as a
    class attribute, and it is pickled and copied by name.

    Args:
        original: the function to replace.
        prepare: called first with the same arguments; returns the arguments for `original`.
        module: the name of the function's module.

    """

    def __init__(
        self,
        original: Callable[..., Any],
        prepare: Callable[..., tuple[Any, ...]],
        module: str = "sys",
    ) -> None:
        self.__module__ = module  # where pickle looks for it
        self.__doc__ = original.__doc__
        self.__wrapped__ = original
        self._prepare = prepare

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # a test's failure shows the call alone
        if not kwargs:
            args = self._prepare(*args)
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> str:
        return str(self.__wrapped__.__name__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)
