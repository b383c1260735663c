"""Sees what ends a program where Python itself handles it, out of the program's way.

Python calls sys.excepthook with an exception that nobody has caught. An exit it announces nowhere,
but it asks the SystemExit for its `code`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from .exits import Exits


class StandIn:
    """What stands in for a function of `sys`, or the like, whose name and place it takes.

    As that, and unlike a function of Python's, it does not become a method where a class has it as
    an attribute, and it is pickled and copied by its name.

    Args:
        original: what it stands in for.
        prepare: is called before, with the same arguments; gives those for `original`.
        module: the name of the module that it is in.

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


def is_watched() -> bool:
    """Whether a hook is in place in this process: until 3.11, also one in another interpreter."""
    return isinstance(SystemExit.__dict__["code"], property)


def watch_exceptions(
    uncaught: Callable[[type[BaseException], BaseException, TracebackType | None], None],
) -> None:
    """Have `uncaught` called with each exception that sys.excepthook is given, by Python or not."""

    def prepare(*args: Any) -> tuple[Any, ...]:
        if len(args) == 3:
            uncaught(*args)
        return args

    is_original = sys.excepthook is sys.__excepthook__
    sys.excepthook = StandIn(sys.excepthook, prepare)
    if is_original:  # and still is, for who asks
        sys.__excepthook__ = sys.excepthook


def watch_hard_exits(exits: Callable[[int], None]) -> None:
    """Have `exits` called with the status of each os._exit(), before that."""

    def prepare(*args: Any) -> tuple[Any, ...]:
        if len(args) == 1 and isinstance(args[0], int):
            exits(args[0])
        return args

    os._exit = StandIn(os._exit, prepare, "os")


def watch_exits(exits: Exits) -> None:
    """Have `exits` see the exit that nobody has caught, before anything else ends.

    The attribute of a built-in class cannot be replaced, but in the dictionary behind it. What is
    there lives longer than anything of Python's own, so it may not keep `exits` alive.
    """
    import gc
    from _weakref import ref  # without weakref's own imports

    real: Any = SystemExit.__dict__["code"]
    get, getframe, watcher = real.__get__, sys._getframe, ref(exits)

    def code(error: SystemExit) -> Any:
        try:
            getframe(1)
        except ValueError:  # it is not Python code that asks
            exits = watcher()
            if exits is not None:
                exits.see_exit(error)
        return get(error)

    (attributes,) = gc.get_referents(SystemExit.__dict__)
    attributes["code"] = property(code, real.__set__, real.__delete__, real.__doc__)
    if sys.version_info < (3, 12):
        # There it raises the status alone, and Python makes an exception of it for who catches it.
        sys.exit = StandIn(sys.exit, _as_exit)


def _as_exit(*args: Any) -> tuple[Any, ...]:
    """For sys.exit(): the exception that its status stands for."""
    status = args[0] if args else None
    if len(args) > 1 or isinstance(status, SystemExit):
        return args
    if status is None:
        return (SystemExit(),)
    return (SystemExit(*status) if isinstance(status, tuple) else SystemExit(status),)
