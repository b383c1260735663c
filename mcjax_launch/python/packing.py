"""Calls packed for the ranks: a function with its arguments, or a text to run."""

from __future__ import annotations

import ast
import contextlib
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
from mcjax_launch.wording import cut_end

if TYPE_CHECKING:
    from types import FrameType

    from mcjax_launch.features.session.messages import Buffer

_INSTALL = "pip install cloudpickle"
# Of a wrong argument.
_MOST_SHOWN = 40
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
        TypeError: `function` is no function, or its arguments are not in a list and a dict.

    """
    if not callable(function):
        raise TypeError(f"run: {function!r} is not callable; launch runs a program")
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args: {_cut(args)} is not a list or tuple; write ({_cut(args)},)")
    if not isinstance(kwargs, (Mapping, type(None))):
        raise TypeError(f"kwargs: {_cut(kwargs)} is not a dict; write {{'name': {_cut(kwargs)}}}")
    parts, main = _pickle_call(function, tuple(args), dict(kwargs or {}))
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
    returns: bool = False,
    is_last: bool = False,
    values: Mapping[str, object] | None = None,
) -> PackedCall:
    """Pack the run of a text in `__main__`.

    Args:
        source: Python code.
        name: stands in place of a file in tracebacks.
        initializes: True to call jax.distributed.initialize() first, if the rank has not yet.
        shows: True to return what to show of the last expression's value, not the value.
        returns: True to return the value, too (see `Call`).
        is_last: True if the rank's program ends with it.
        values: values to give names there first.

    """
    head = _make_head(initializes).copy_with(
        sources={name: source}, cell=name, shows=shows, returns=returns, is_last=is_last
    )
    return _pack(name, head, _pickle_names(dict(values or {})))


def _make_head(initializes: bool) -> Call:
    folders = tuple(os.path.abspath(folder) for folder in sys.path)
    library = os.path.dirname(os.__file__)
    first = folders[: folders.index(library)] if library in folders else ()
    return Call(folders, {}, initializes, None, (), (), first_folders=first)


def _pack(name: str, head: Call, parts: Sequence[Buffer]) -> PackedCall:
    return PackedCall(name, make_call_file(head.copy_with(sizes=list_sizes(parts)), parts))


def _cut(value: object) -> str:
    return cut_end(repr(value), _MOST_SHOWN)


def get_function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function for a message."""
    return str(getattr(function, "__name__", None) or repr(function))


def _pickle_call(
    function: Callable[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[list[Buffer], MainFile | None]:
    """Return a pickled call, and the main file if ranks must import it to load the call.

    Raises:
        LaunchError: the call cannot be pickled; the message names a cure.

    """
    call = (function, args, kwargs)
    name = get_function_name(function)
    why = ""
    if not _has_modules_by_value():
        try:
            parts = pickle_in_parts(call, pickle.dumps)
        except Exception as error:  # whatever the caller's objects raise
            why = _explain(error, function, args, kwargs, pickle.dumps)
        else:
            if _MAIN not in parts[0]:
                return parts, None
            main = _find_main_file()
            if main is not None and not _would_call_again(main.source):
                return parts, main
            why = (
                f"{name} is in {main.path}, and would be called again when the ranks import that "
                f'file: put the call under `if __name__ == "__main__":`, or {_INSTALL}'
                if main is not None
                else f"{name} needs names that only __main__ defines, which the ranks cannot "
                f"import: {_INSTALL}, or move it to a module"
            )
    try:
        dumps = _make_dumps_by_value()
    except ImportError:
        raise LaunchError(f"run: {why}") from None
    try:
        return pickle_in_parts(call, dumps), None
    except Exception as error:
        why = _explain(error, function, args, kwargs, dumps)
        raise LaunchError(f"run: {why}") from error


def _explain(
    error: Exception,
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    dumps: Callable[..., bytes],
) -> str:
    """Return what of a call cannot be pickled, and a cure.

    Args:
        error: the error of the whole call.
        function: the function.
        args: positional arguments.
        kwargs: keyword arguments.
        dumps: the function that has failed.

    """
    name = get_function_name(function)
    arguments = {
        **{f"args[{place}]": value for place, value in enumerate(args)},
        **{f"kwargs[{key!r}]": value for key, value in kwargs.items()},
    }
    if culprit := _find_unpicklable(arguments, dumps):
        place, error = culprit
        what = f"{place}, an argument of {name},"
    elif culprit := _find_unpicklable(_find_used_values(function), dumps):
        place, error = culprit
        what = f"{place}, which {name} uses,"
    else:
        what = name
    # A TypeError comes from the object itself, other errors from a search for a name.
    is_final = isinstance(error, TypeError) or dumps is not pickle.dumps
    cure = f"create it inside {name}, in the ranks" if is_final and what != name else ""
    cure = cure if is_final else f"cloudpickle can pickle more: {_INSTALL}"
    return f"{what} cannot be pickled: {error}" + (f"; {cure}" if cure else "")


def _find_unpicklable(
    values: Mapping[str, object], dumps: Callable[..., bytes]
) -> tuple[str, Exception] | None:
    """Return the first value that cannot be pickled, by its name, with its error."""
    for name, value in values.items():
        try:
            pickle_in_parts(value, dumps)
        except Exception as error:
            return name, error
    return None


def _find_used_values(function: Callable[..., Any]) -> Mapping[str, object]:
    """Return values that are pickled with a function, by their names there."""
    import inspect

    if (owner := getattr(function, "__self__", None)) is not None:
        return {"self": owner}
    try:
        used = inspect.getclosurevars(function)
    except TypeError:  # no function in Python
        return {}
    return {**used.nonlocals, **used.globals}


def _pickle_names(values: Mapping[str, object]) -> list[Buffer]:
    """Pickle values that become names in ranks, by value if cloudpickle is installed.

    Raises:
        LaunchError: a value cannot be pickled.

    """
    dumps: Callable[..., bytes] = pickle.dumps
    if values:
        with contextlib.suppress(ImportError):
            dumps = _make_dumps_by_value()
    if culprit := _find_unpicklable(values, dumps):
        raise LaunchError(f"{culprit[0]} cannot be pickled: {culprit[1]}")
    return pickle_in_parts((None, (), values), dumps)


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
