"""The call of a function, packed for the ranks: by name what they can import, the rest by value."""

from __future__ import annotations

import ast
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import decode_source
from typing import TYPE_CHECKING, Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.function.messages import Call, MainFile, call_file, in_parts, sizes_of

if TYPE_CHECKING:
    from types import FrameType

    from mcjax_launch.features.function.messages import Buffer

_INSTALL = "pip install cloudpickle"
# The name __main__ as a pickle has it: SHORT_BINUNICODE.
_MAIN = b"\x8c\x08__main__"


def packed(
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    initialize: bool,
) -> tuple[Buffer, ...]:
    """The content of the file that the ranks get, in pieces which share the arguments' memory.

    Raises:
        LaunchError: it cannot be pickled.
        TypeError: it is no function.

    """
    if not callable(function):
        raise TypeError(f"run: {function!r} is not callable; launch runs a program")
    parts, main = _pickled(function, (function, tuple(args), dict(kwargs)))
    call = Call(
        folders=tuple(os.path.abspath(folder) for folder in sys.path),
        sources=_sources_of_no_files(),
        initializes=initialize,
        main=main,
        argv=tuple(sys.argv),
        sizes=sizes_of(parts),
    )
    return tuple(call_file(call, parts))


def name_of(function: Callable[..., Any]) -> str:
    """What to call a function in a message."""
    return str(getattr(function, "__name__", None) or repr(function))


def _pickled(function: Callable[..., Any], call: object) -> tuple[list[Buffer], MainFile | None]:
    """A call as the ranks can load it, with the main file if they have to import that.

    Raises:
        LaunchError: it cannot be pickled; says what helps.

    """
    why = ""
    if not _has_modules_by_value():
        try:
            parts = in_parts(call, pickle.dumps)
        except Exception as error:  # whatever the caller's objects raise
            why = f"cannot be pickled ({error}); with cloudpickle it may: {_INSTALL}"
        else:
            if _MAIN not in parts[0]:
                return parts, None
            main = _main_file()
            if main is not None and not _would_call_again(main.source):
                return parts, main
            why = (
                f"is of {main.path}, which the ranks import, and which would call it again then: "
                f'put the call under `if __name__ == "__main__":`, or {_INSTALL}'
                if main is not None
                else "needs what only __main__ defines, which the ranks cannot import: "
                f"{_INSTALL}, or move it to a module"
            )
    name = name_of(function)
    try:
        import cloudpickle
    except ImportError:
        raise LaunchError(f"run: {name} {why}") from None
    try:
        return in_parts(call, cloudpickle.dumps), None
    except Exception as error:
        raise LaunchError(f"run: {name} cannot be pickled ({error})") from error


def _has_modules_by_value() -> bool:
    """Whether the user has told cloudpickle of modules that other processes cannot import."""
    cloudpickle: Any = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


def _main_file() -> MainFile | None:
    """The file of the main program; None if there is none, as in a notebook."""
    main: Any = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            source = decode_source(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError):  # in an archive, or compiled
        return None
    return MainFile(os.path.abspath(path), getattr(main, "__package__", None) or "", source)


def _would_call_again(source: str) -> bool:
    """Whether what has led here happens whenever the main file is imported: under no `if`."""
    names = vars(sys.modules["__main__"])
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (
        frame.f_globals is names and frame.f_code.co_name == "<module>"
    ):
        frame = frame.f_back
    if frame is None:  # it is another thread's doing
        return False
    line = frame.f_lineno
    branches = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If))
    return not any(node.lineno <= line <= (node.end_lineno or 0) for node in branches)


def _sources_of_no_files() -> dict[str, str]:
    """By name: the sources of what is in no file, such as a notebook's cells, for tracebacks."""
    whole = [(name, entry[2]) for name, entry in linecache.cache.items() if len(entry) > 1]
    return {name: "".join(lines) for name, lines in whole if not os.path.exists(name)}
