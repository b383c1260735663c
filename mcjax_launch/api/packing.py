"""Calls packed for the ranks: a function with its arguments, or a text to run."""

from __future__ import annotations

import ast
import linecache
import os
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from importlib.util import decode_source
from io import BytesIO
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.messages import (
    Call,
    MainFile,
    list_sizes,
    make_call_file,
    pickle_in_parts,
)

if TYPE_CHECKING:
    from types import FrameType

    from mcjax_launch.features.session.messages import Buffer

_INSTALL = "pip install cloudpickle"
# The name __main__ as a pickle has it: SHORT_BINUNICODE.
_MAIN = b"\x8c\x08__main__"


class PackedCall(NamedTuple):
    """Call for ranks.

    Args:
        name: name of the function or of the text, for messages.
        content: content of the call's file, as pieces that share the arguments' memory.

    """

    name: str
    content: Sequence[Buffer]


def pack_function(
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    *,
    initializes: bool,
    is_last: bool = False,
) -> PackedCall:
    """Pack the call of a function.

    Raises:
        LaunchError: the call cannot be pickled.
        TypeError: `function` is no function.

    """
    if not callable(function):
        raise TypeError(f"run: {function!r} is not callable; launch runs a program")
    parts, main = _pickle_call(function, (function, tuple(args), dict(kwargs or {})))
    head = _make_head(initializes).copy_with(
        sources=_collect_fileless_sources(), main=main, argv=tuple(sys.argv), is_last=is_last
    )
    return _pack(get_function_name(function), head, parts)


def pack_cell(
    source: str,
    name: str,
    *,
    initializes: bool,
    shows: bool = False,
    is_last: bool = False,
    values: Mapping[str, object] | None = None,
) -> PackedCall:
    """Pack the run of a text in `__main__`.

    Args:
        source: Python code.
        name: stands in place of a file in tracebacks.
        initializes: True to call jax.distributed.initialize() first, if the rank has not yet.
        shows: True to return what to show of the last expression's value, not the value.
        is_last: True if the rank's program ends with it.
        values: values to give names there first.

    """
    head = _make_head(initializes).copy_with(
        sources={name: source}, cell=name, shows=shows, is_last=is_last
    )
    return _pack(name, head, pickle_in_parts((None, (), dict(values or {})), pickle.dumps))


def pack_value(value: object) -> PackedCall:
    """Pack a value for a call that runs, and receives it (`features/session/messages.py`)."""
    parts = pickle_in_parts((None, (), {"value": value}), pickle.dumps)
    return _pack("", Call((), {}, False, None, (), ()), parts)


def _make_head(initializes: bool) -> Call:
    folders = tuple(os.path.abspath(folder) for folder in sys.path)
    library = os.path.dirname(os.__file__)
    first = folders[: folders.index(library)] if library in folders else ()
    return Call(folders, {}, initializes, None, (), (), first_folders=first)


def _pack(name: str, head: Call, parts: Sequence[Buffer]) -> PackedCall:
    return PackedCall(name, make_call_file(head.copy_with(sizes=list_sizes(parts)), parts))


def get_function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function for a message."""
    return str(getattr(function, "__name__", None) or repr(function))


def _pickle_call(
    function: Callable[..., Any], call: object
) -> tuple[list[Buffer], MainFile | None]:
    """Return a pickled call, and the main file if ranks must import it to load the call.

    Raises:
        LaunchError: the call cannot be pickled; the message names a cure.

    """
    why = ""
    if not _has_modules_by_value():
        try:
            parts = pickle_in_parts(call, pickle.dumps)
        except Exception as error:  # whatever the caller's objects raise
            why = f"cannot be pickled ({error}); cloudpickle may be able to: {_INSTALL}"
        else:
            if _MAIN not in parts[0]:
                return parts, None
            main = _find_main_file()
            if main is not None and not _would_call_again(main.source):
                return parts, main
            why = (
                f"is in {main.path}, and would be called again when the ranks import that file: "
                f'put the call under `if __name__ == "__main__":`, or {_INSTALL}'
                if main is not None
                else "needs names that only __main__ defines, which the ranks cannot import: "
                f"{_INSTALL}, or move it to a module"
            )
    name = get_function_name(function)
    try:
        dumps = _make_dumps_by_value()
    except ImportError:
        raise LaunchError(f"run: {name} {why}") from None
    try:
        return pickle_in_parts(call, dumps), None
    except Exception as error:
        raise LaunchError(f"run: {name} cannot be pickled ({error})") from error


def _make_dumps_by_value() -> Callable[..., bytes]:
    """Return a `cloudpickle.dumps` in which code keeps the name of its file, for tracebacks.

    Source: cloudpickle 3.1.3 replaces each file's name by "<dynamic-code>", so that equal code
    gives equal pickles.
    """
    from cloudpickle import CloudPickler

    def with_file(code: CodeType) -> tuple[Any, ...]:
        make, fields = CloudPickler.dispatch_table[CodeType](code)
        file = code.co_filename
        return make, tuple(
            file if isinstance(field, str) and field == "<dynamic-code>" else field
            for field in fields
        )

    class ByValue(CloudPickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: with_file}, CloudPickler.dispatch_table)

    def dumps(value: object, **options: Any) -> bytes:
        file = BytesIO()
        ByValue(file, **options).dump(value)
        return file.getvalue()

    return dumps


def _has_modules_by_value() -> bool:
    """Return whether the user told cloudpickle to pickle any module by value."""
    cloudpickle: Any = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


def _find_main_file() -> MainFile | None:
    """Return the file of the main program; None if there is no readable one, as in a notebook."""
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
    """Return whether importing the main file would call `run` again: the call is under no `if`."""
    names = vars(sys.modules["__main__"])
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (
        frame.f_globals is names and frame.f_code.co_name == "<module>"
    ):
        frame = frame.f_back
    if frame is None:  # the call was made in another thread
        return False
    line = frame.f_lineno
    branches = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If))
    return not any(node.lineno <= line <= (node.end_lineno or 0) for node in branches)


def _collect_fileless_sources() -> dict[str, str]:
    """Return sources without a file, such as notebook cells, by name, for tracebacks."""
    whole = [(name, entry[2]) for name, entry in linecache.cache.items() if len(entry) > 1]
    return {name: "".join(lines) for name, lines in whole if not os.path.exists(name)}
