"""What is reported of a program's failure, and of exceptions that are no failures themselves."""

from __future__ import annotations

import linecache
import sys
import traceback as tb

from ..wire import source_lines
from ..wire.exit_status import of_signal
from ..wire.hook_messages import UnhandledError, Failed, Raised
from ..wire.source_lines import embedded
from . import devices, exits, first_backend, user_lines

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType, TracebackType
    from typing import Any, Optional

    from .agent_link import AgentLink
    from .failed_tests import FailedTests

    #: Of a line of code: where it is, as `train.py:8 in step`, and what it says; None if not known.
    Place = tuple[Optional[str], Optional[str]]


_MOST_TEXT = 32_000
# Of the exceptions behind another one.
_MOST_CAUSES, _MOST_OF_CAUSE = 4, 4_000
# In what jax.make_mesh raises where there are several slices.
_SEVERAL_SLICES = "multi-slice topologies"
# In what initialize() raises once a backend has been started.
_TOO_LATE = "must be called before any JAX c"
# The folders of runners of tests, whose exits say nothing by their lines.
_RUNNERS = ("/pytest/", "/_pytest/", "/unittest/")
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
    except Exception as error:  # an exception that cannot be printed
        text = f"{kind.__name__} (cannot be shown: {error!r})"
    told = raised(value, traceback)
    module = getattr(value, "name", None) if isinstance(value, ImportError) else None
    return Failed(
        _status_of_exception(kind),
        joined,
        exception=told.exception,
        summary=told.summary,
        traceback=text[-_MOST_TEXT:],
        where=told.where,
        line=told.line,
        module=module if isinstance(module, str) else None,
        python=sys.executable,
        causes=_causes(value),
        slices=devices.slices_of_processes() if _SEVERAL_SLICES in told.summary else (),
    )


def of_exit(code: Any, error: SystemExit, outermost: FrameType | None, *, joined: bool) -> Failed:
    """The failure, or not, of a program that has exited.

    Args:
        code: what `error` gives as its code.
        error: the exit.
        outermost: the program's outermost frame, if it is known.
        joined: the program is in the job.

    """
    traceback = error.__traceback__
    if traceback is None and outermost is not None:
        traceback = _traceback_through(outermost)
    place = _innermost(traceback)
    return _exited(code, place, error.__context__ or _kept(traceback), joined=joined)


def of_hard_exit(code: int, error: BaseException | None, frame: FrameType | None) -> Failed:
    """The failure of a program that ends its process by os._exit(), and leaves the job so.

    Args:
        code: that it gives.
        error: the exception that was being handled, if one was.
        frame: the user's, that called it.

    """
    place: Place = None, None
    if frame is not None:
        place = _line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return _exited(code, place, error, joined=False)


def _exited(code: Any, place: Place, handled: BaseException | None, *, joined: bool) -> Failed:
    where, line = place
    return Failed(
        _status_of_code(code),
        joined,
        exited=True,
        summary=_text_of_code(code),
        where=where,
        line=line,
        **_handled(handled),
    )


def explained(failed: Failed, tests: FailedTests | None) -> Failed:
    """Return the failure with what explains it: failed tests, or a backend's early start."""
    bare = failed.exited and not failed.summary and failed.handled is None
    if bare and tests is not None and tests.first is not None:
        failed = failed.replaced(handled=tests.first, test=tests.name, failed_tests=tests.count)
    elif bare and any(folder in (failed.where or "") for folder in _RUNNERS):
        failed = failed.replaced(where=None, line=None)
    behind = (failed.handled, *failed.causes)
    if any(_TOO_LATE in raised.summary for raised in (failed, *behind) if raised is not None):
        return failed.replaced(backend=first_backend.start())
    return failed


def raised(
    error: BaseException, traceback: TracebackType | None, *, inside: bool = False
) -> Raised:
    """An exception in short, with the innermost of the user's lines that it has come through.

    Args:
        error: the exception.
        traceback: of it.
        inside: it is in a group.

    """
    name = type(error).__name__
    try:
        summary = "".join(tb.format_exception_only(type(error), error)).strip()
    except Exception as problem:  # it cannot be printed
        summary = f"{name} (cannot be shown: {problem!r})"
    return Raised(name, summary[:_MOST_TEXT], *_place(error, summary, traceback), inside)


def _place(error: BaseException, text: str, traceback: TracebackType | None) -> Place:
    """Where an exception was raised."""
    if isinstance(error, SyntaxError):  # what it is about has not run
        file, number = error.filename, error.lineno
        if (
            isinstance(file, str)
            and isinstance(number, int)
            and file.startswith("/")
            and source_lines.is_users(file)
        ):
            return _line(file, number, "<module>")
    quoted = embedded(text)
    if quoted is not None:  # by a callback: the traceback is of the call of the program
        place = user_lines.users(reversed(quoted.frames), lambda place: place[0])
        if place is not None and source_lines.is_users(place[0]):
            return _line(*place)
    return _innermost(traceback)


def _line(file: str, number: int, name: str) -> Place:
    """A line in a function."""
    return f"{file}:{number} in {name}", linecache.getline(file, number).strip()


def _innermost(traceback: TracebackType | None) -> Place:
    """The innermost of the user's lines in a traceback."""
    frame = user_lines.users(reversed(tb.extract_tb(traceback)), lambda frame: frame.filename)
    if frame is None:
        return None, None
    return f"{frame.filename}:{frame.lineno} in {frame.name}", frame.line


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


def _text_of_code(code: Any) -> str:
    """Return what Python prints at an exit with this code; "" for a status."""
    if code is None or isinstance(code, int):
        return ""
    try:
        return str(code)[:_MOST_TEXT]
    except Exception:  # it cannot be printed
        return ""


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


def _handled(error: BaseException | None) -> dict[str, Any]:
    """The exception that was being handled, maybe the reason for an exit, and what led to it."""
    while isinstance(error, SystemExit):  # an exit that was caught says no more than this one
        error = error.__context__
    if error is None:
        return {}
    return {"handled": raised(error, error.__traceback__), "causes": _causes(error)}


def _kept(traceback: TracebackType | None) -> BaseException | None:
    """The exception that a library has shown before it exits, as click does.

    It exits below the `except`, where Python knows no more of it, and a variable still does.
    """
    exits = None
    while traceback is not None:
        if "__tracebackhide__" not in traceback.tb_frame.f_code.co_varnames:  # no call of ours
            exits = traceback.tb_frame
        traceback = traceback.tb_next
    if exits is None or source_lines.is_users(exits.f_code.co_filename):
        return None
    values = exits.f_locals.values()
    owners = {id(one): one for one in (getattr(value, "__self__", value) for value in values)}
    kept = [one for one in owners.values() if isinstance(one, Exception) and one.__traceback__]
    return kept[0] if len(kept) == 1 else None


def _causes(error: BaseException | None) -> tuple[Raised, ...]:
    """The exceptions that an exception was raised from, and those that it is a group of."""
    found: list[Raised] = []
    ahead = _behind(error)
    seen = {id(error)}
    while ahead and len(found) < _MOST_CAUSES:
        one, inside = ahead.pop(0)
        if id(one) in seen:  # a chain may be a circle
            continue
        seen.add(id(one))
        if not hasattr(one, "exceptions") or not inside:
            told = raised(one, one.__traceback__, inside=inside)
            found.append(told.replaced(summary=told.summary[:_MOST_OF_CAUSE]))
        ahead = _behind(one) + ahead
    return tuple(found)


def _behind(error: BaseException | None) -> list[tuple[BaseException, bool]]:
    """What an exception was raised from, and what is inside of it: whether it is that."""
    if error is None:
        return []
    cause = error.__cause__
    behind = [(cause, False)] if cause is not None else []
    inside = getattr(error, "exceptions", None) or ()  # of a group, also that of a package
    return behind + [(one, True) for one in inside if isinstance(one, BaseException)]


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


# --- exceptions that are no failures: of threads and JAX's callbacks ---
# The main thread may wait for ever for what such a thread was to do, and other ranks for the
# program whose callback failed. The launcher is told of them, and tells them in its turn where the
# job hangs or fails.

# A program may go through more of them on purpose.
_MOST = 32
_MOST_SUMMARY = 2_000
# JAX's loggers of what callbacks raise, and how it says so.
_LOGGERS = ("jax._src.callback", "jax._src.debugging")
_FAILED_CALLBACK = " failed"


class UnhandledErrors:
    """Reports those of this process.

    Args:
        link: to the agent.
        is_wanted: whether the program takes part in a job, or is about to.

    """

    def __init__(self, link: AgentLink, is_wanted: Callable[[], bool]) -> None:
        self._link = link
        self._is_wanted = is_wanted
        self._count = 0

    def watch_threads(self) -> None:
        """See the exceptions that end threads, from now on."""
        import threading

        def prepare(*args: Any) -> tuple[Any, ...]:
            if len(args) == 1 and not issubclass(args[0].exc_type, SystemExit):
                thread = getattr(args[0].thread, "name", "")
                self._report(thread, args[0].exc_value)
            return args

        threading.excepthook = exits.StandIn(threading.excepthook, prepare, "threading")

    def watch_callbacks(self) -> None:
        """See what JAX's callbacks raise, from now on: it logs that where it happens."""
        import logging

        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._see_logged)

    def _see_logged(self, record: Any) -> bool:
        if record.exc_info and str(record.msg).endswith(_FAILED_CALLBACK):
            callback = record.msg[: -len(_FAILED_CALLBACK)]
            self._report(record.threadName, record.exc_info[1], callback=callback)
        return True

    def _report(
        self,
        thread: str,
        error: BaseException | None,
        callback: str = "",
    ) -> None:
        if error is None or self._count >= _MOST or not self._is_wanted():
            return
        try:
            told = raised(error, error.__traceback__)
            file, _, line = (told.where or "").rpartition(" in ")[0].rpartition(":")
            told = told.replaced(
                summary=told.summary[:_MOST_SUMMARY],
                where=f"{user_lines.shown(file)}:{line}" if file else None,
            )
        except Exception:  # an exception that cannot be looked at: the program comes first
            return
        self._count += 1
        self._link.send(UnhandledError(thread, told, callback))
