"""What is reported of a program's failure: an exception, or an exit with a status."""

from __future__ import annotations

import linecache
import sys
import traceback as tb

from ..wire import source_lines
from ..wire.exit_status import of_signal
from ..wire.hook_messages import Failed, HandledException
from . import slices, user_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType, TracebackType
    from typing import Any

_MOST_TEXT = 32_000
# In what jax.make_mesh raises where there are several slices.
_SEVERAL_SLICES = "multi-slice topologies"
# What `python -m` calls before the program.
_OF_RUNPY = ("_run_module_as_main", "_run_code")


def of_exception(
    kind: type[BaseException],
    value: BaseException,
    traceback: TracebackType | None,
    *,
    joined: bool,
) -> Failed:
    """The failure of a program that an exception has ended.

    Args:
        kind: its class.
        value: the exception.
        traceback: of it.
        joined: the program is in the job.

    """
    try:
        text = _formatted(tb.TracebackException(kind, value, traceback))
        summary = "".join(tb.format_exception_only(kind, value)).strip()
    except Exception as error:  # an exception that cannot be printed
        text = summary = f"{kind.__name__} (cannot be shown: {error!r})"
    innermost_first = reversed(tb.extract_tb(traceback))
    frame = user_lines.users(innermost_first, lambda frame: frame.filename)
    module = getattr(value, "name", None) if isinstance(value, ImportError) else None
    return Failed(
        _status_of_exception(kind),
        joined,
        exception=kind.__name__,
        summary=summary[:_MOST_TEXT],
        traceback=text[-_MOST_TEXT:],
        where=f"{frame.filename}:{frame.lineno} in {frame.name}" if frame else None,
        line=frame.line if frame else None,
        module=module if isinstance(module, str) else None,
        python=sys.executable,
        slices=slices.slices_of_processes() if _SEVERAL_SLICES in summary else (),
    )


def of_exit(code: Any, error: SystemExit, outermost: FrameType, *, joined: bool) -> Failed:
    """The failure, or not, of a program that has exited.

    Args:
        code: what `error` gives as its code.
        error: the exit.
        outermost: the program's outermost frame.
        joined: the program is in the job.

    """
    places = _places(error.__traceback__ or _traceback_through(outermost))
    place = user_lines.users(reversed(places), lambda place: place[0])
    where = line = None
    if place is not None:
        file, number, name = place
        where, line = f"{file}:{number} in {name}", linecache.getline(file, number).strip()
    return Failed(
        _status_of_code(code),
        joined,
        exited=True,
        where=where,
        line=line,
        handled=_handled(error.__context__),
    )


def _status_of_exception(kind: type[BaseException]) -> int:
    """The exit status of a process that this exception ends."""
    if not issubclass(kind, KeyboardInterrupt):
        return 1
    from _signal import SIGINT  # without signal's own imports

    return of_signal(SIGINT)


def _status_of_code(code: Any) -> int:
    """The exit status of a process that exits with this code."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _places(traceback: TracebackType | None) -> list[tuple[str, int, str]]:
    """File, line and function of each frame, outermost first."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return places


def _traceback_through(outermost: FrameType) -> TracebackType | None:
    """The traceback of what has left this frame.

    Until Python 3.11 an exception that no frame has handled does not know its own.
    """
    import gc
    from types import TracebackType

    for one in gc.get_referrers(outermost):
        if isinstance(one, TracebackType) and one.tb_lasti == outermost.f_lasti:
            return one
    return None


def _handled(error: BaseException | None) -> HandledException | None:
    """The exception that was being handled: maybe the reason for an exit."""
    if error is None:
        return None
    try:
        summary = str(error)[:_MOST_TEXT]
    except Exception:
        summary = ""
    return HandledException(type(error).__name__, summary)


def _formatted(exception: tb.TracebackException) -> str:
    """A traceback without the frames of the hook, of runpy and those that JAX marks as internal."""
    marked = _marked_by_jax()
    ahead: list[Any] = [exception]
    while ahead:
        one = ahead.pop()
        if one is None:
            continue
        kept = [
            frame
            for frame in one.stack
            if not frame.filename.startswith(marked)
            and source_lines.owner(frame.filename) != source_lines.OURS
            and frame.name not in _OF_RUNPY
        ]
        if kept:
            one.stack[:] = kept
        notes = getattr(one, "__notes__", None)
        if isinstance(notes, list):  # that JAX has removed some frames itself
            one.__notes__ = [note for note in notes if "JAX has removed its internal" not in note]
        ahead += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(exception.format())


def _marked_by_jax() -> tuple[str, ...]:
    """The files whose frames JAX leaves out of its own tracebacks."""
    util: ModuleType | None = sys.modules.get("jax._src.traceback_util")
    return tuple(map(str, getattr(util, "_exclude_paths", ())))
