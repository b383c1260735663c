"""Wrapping of JAX's functions: any function, and the launch of compiled programs."""

from __future__ import annotations

import functools
import inspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Around = Callable[[Callable[..., Any], Any, tuple[Any, ...]], Any]


def wrap_like(real: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the name, documentation and signature of `real`."""
    function = functools.wraps(real)(function)
    function.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
    return function


def intercept_launches(around: Around) -> None:
    """Have a function launch each program in place of JAX's Python code.

    Args:
        around: called with JAX's own function, the program (an ExecuteReplicated) and its
            arguments; it returns the outputs.

    Raises:
        ImportError, AttributeError: this JAX lacks an internal name.

    """
    from jax._src import source_info_util, traceback_util
    from jax._src.interpreters import pxla

    for function in (intercept_launches, around):
        own = function.__code__.co_filename
        source_info_util.register_exclusion(own)  # no operation is from these lines
        traceback_util.register_exclusion(own)
    real = pxla.ExecuteReplicated.__call__

    def call(self: Any, *args: Any) -> Any:
        return around(real, self, args)

    pxla.ExecuteReplicated.__call__ = wrap_like(real, call)


# --- stand-in for a function, called in its place, that runs code before each call ---


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
