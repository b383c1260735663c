"""Record of the start of JAX's first backend, after which JAX rejects initialize()."""

from __future__ import annotations

import sys

from ..wire import source_lines
from ..wire.hook_messages import BackendStart

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable

    #: File and line of a call.
    Call = tuple[str, int]

_IMPORTLIB = "<frozen importlib"
_MOST_CALLS = 500

_calls: list[Call] = []  # innermost first


def record_start() -> None:
    """Record the call stack with which the first backend is started."""
    frame = sys._getframe(1)
    while frame is not None and len(_calls) < _MOST_CALLS:
        _calls.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]


def find_start() -> BackendStart | None:
    """Return the line of code that started the first backend; None if unknown."""
    line = next((call for call in _calls if not _is_inside(call)), None)
    if line is None:
        return None
    statement = _find_import(_calls[_calls.index(line) :])
    return BackendStart(
        *_describe_call(line), *(_describe_call(statement) if statement is not None else ("", ""))
    )


def _is_inside(call: Call) -> bool:
    """Return whether a call's file belongs to JAX, Python or mcjax-launch."""
    file = call[0]
    ours = source_lines.find_owner(file) in (source_lines.OURS, source_lines.PYTHON)
    return ours or source_lines.is_jax(file)


def _find_import(calls: Iterable[Call]) -> Call | None:
    """Return the outermost import statement among calls, preferably in user code; None if none."""
    imports: list[Call] = []
    inside = False
    for call in calls:
        if inside and not call[0].startswith(_IMPORTLIB):
            imports.append(call)
        inside = call[0].startswith(_IMPORTLIB)
    imports = [call for call in imports if not _is_inside(call)]
    own = [call for call in imports if source_lines.is_users(call[0])]
    return next(reversed(own or imports), None)


def _describe_call(call: Call) -> tuple[str, str]:
    import linecache

    file, number = call
    is_users = source_lines.is_users(file)
    name = source_lines.format_path(file) if is_users else source_lines.shorten_path(file)
    return f"{name}:{number}", linecache.getline(file, number).strip()
