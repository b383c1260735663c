"""Reports of a program's failure, and of exceptions in threads and callbacks that do not end it."""

from __future__ import annotations

import linecache
import sys
import traceback as tb

from ..wire import source_lines
from ..wire.exit_status import compute_signal_status
from ..wire.hook_messages import Failed, Raised, UnhandledError
from ..wire.source_lines import find_quoted_exception
from . import devices, first_backend, user_lines

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, ModuleType, TracebackType
    from typing import Any, Optional

    from .agent_link import AgentLink

    #: Position of a line, as `train.py:8 in step`, and the line's text; None if unknown.
    Place = tuple[Optional[str], Optional[str]]


_MOST_TEXT = 32_000
# Most causes of an exception to report, and characters of each.
_MOST_CAUSES, _MOST_OF_CAUSE = 4, 4_000
# Part of the message of jax.make_mesh if there are several slices.
_SEVERAL_SLICES = "multi-slice topologies"
# Part of the message of initialize() if a backend has been started.
_TOO_LATE = "must be called before any JAX c"
# Folders of test runners: the line of their exit explains nothing.
_RUNNERS = ("/pytest/", "/_pytest/", "/unittest/")
# Functions that `python -m` calls before the program.
_OF_RUNPY = ("_run_module_as_main", "_run_code")


def describe_exception(
    kind: type[BaseException],
    value: BaseException,
    traceback: TracebackType | None,
    *,
    joined: bool,
) -> Failed:
    """Describe the failure of a program that an exception has ended.

    Args:
        kind: class of the exception.
        value: the exception.
        traceback: traceback of the exception.
        joined: True if the program is in the job: after initialize(), before shutdown().

    """
    try:
        text = _format_traceback(tb.TracebackException(kind, value, traceback))
    except Exception as error:  # an exception that cannot be printed
        text = f"{kind.__name__} (cannot be shown: {error!r})"
    told = summarize_exception(value, traceback)
    module = getattr(value, "name", None) if isinstance(value, ImportError) else None
    return Failed(
        _compute_exception_status(kind),
        joined,
        exception=told.exception,
        summary=told.summary,
        traceback=text[-_MOST_TEXT:],
        where=told.where,
        line=told.line,
        module=module if isinstance(module, str) else None,
        python=sys.executable,
        causes=_list_causes(value),
        before=_find_handled(value),
        slices=devices.list_process_slices() if _SEVERAL_SLICES in told.summary else (),
    )


def describe_exit(
    code: Any, error: SystemExit, outermost: FrameType | None, *, joined: bool
) -> Failed:
    """Describe an uncaught SystemExit, whose status may be 0.

    Args:
        code: the value of `error.code`.
        error: the SystemExit.
        outermost: the program's outermost frame, if known.
        joined: True if the program is in the job: after initialize(), before shutdown().

    """
    traceback = error.__traceback__
    if traceback is None and outermost is not None:
        traceback = _find_traceback(outermost)
    return _make_exit_failure(code, _find_innermost(traceback), error.__context__, joined=joined)


def describe_hard_exit(code: int, error: BaseException | None, frame: FrameType | None) -> Failed:
    """Describe the failure of a program that calls os._exit(), which skips JAX's exit barrier.

    Args:
        code: status passed to os._exit().
        error: exception that was being handled; None if there was none.
        frame: the user's frame that called os._exit(); None if unknown.

    """
    place: Place = None, None
    if frame is not None:
        place = _describe_line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return _make_exit_failure(code, place, error, joined=False)


def _make_exit_failure(
    code: Any, place: Place, handled: BaseException | None, *, joined: bool
) -> Failed:
    where, line = place
    return Failed(
        _compute_exit_status(code),
        joined,
        exited=True,
        summary=_format_exit_code(code),
        where=where,
        line=line,
        **_make_handled_fields(handled),
    )


def add_explanation(failed: Failed, cause: Mapping[str, Any]) -> Failed:
    """Return the failure with an explanation added, such as a backend's early start.

    Args:
        failed: the failure to explain.
        cause: fields that explain an exit, such as from `FailedTests.as_cause`; {} if unknown.

    """
    bare = failed.exited and not failed.summary and failed.handled is None
    if bare and cause:
        failed = failed.copy_with(**cause)
    elif bare and any(folder in (failed.where or "") for folder in _RUNNERS):
        failed = failed.copy_with(where=None, line=None)
    behind = (failed.handled, *failed.causes)
    if any(_TOO_LATE in raised.summary for raised in (failed, *behind) if raised is not None):
        return failed.copy_with(backend=first_backend.find_start())
    return failed


def summarize_exception(
    error: BaseException, traceback: TracebackType | None, *, inside: bool = False
) -> Raised:
    """Summarize an exception, with the innermost line of user code in its traceback.

    Args:
        error: the exception.
        traceback: traceback of the exception.
        inside: True if the exception is a member of an exception group.

    """
    name = type(error).__name__
    try:
        summary = "".join(tb.format_exception_only(type(error), error)).strip()
    except Exception as problem:  # it cannot be printed
        summary = f"{name} (cannot be shown: {problem!r})"
    summary = _add_notes(summary, error)
    return Raised(name, summary[:_MOST_TEXT], *_find_place(error, summary, traceback), inside)


def _add_notes(summary: str, error: BaseException) -> str:
    """Return an exception's text with the notes (`add_note`) of the user in its first line."""
    notes = getattr(error, "__notes__", None)
    firsts = (
        [str(note).strip().partition("\n")[0] for note in notes] if isinstance(notes, list) else []
    )
    own = [note for note in firsts if note.strip("-") and "JAX has removed its" not in note]
    first, newline, rest = summary.partition("\n")
    return f"{first} ({'; '.join(own)}){newline}{rest}" if own else summary


def _find_place(error: BaseException, text: str, traceback: TracebackType | None) -> Place:
    """Return file, line and function where an exception was raised, and the line's text."""
    if isinstance(error, SyntaxError):  # its line has not run, so it is not in the traceback
        file, number = error.filename, error.lineno
        if (
            isinstance(file, str)
            and isinstance(number, int)
            and file.startswith("/")
            and source_lines.is_users(file)
        ):
            return _describe_line(file, number, "<module>")
    quoted = find_quoted_exception(text)
    if quoted is not None:  # a callback's: the traceback shows only the call of the program
        place = user_lines.find_user_frame(reversed(quoted.frames), lambda place: place[0])
        if place is not None and source_lines.is_users(place[0]):
            return _describe_line(*place)
    return _find_innermost(traceback)


def _describe_line(file: str, number: int, name: str) -> Place:
    """Return a source line as "FILE:LINE in FUNCTION", and its text."""
    return f"{file}:{number} in {name}", linecache.getline(file, number).strip()


def _find_innermost(traceback: TracebackType | None) -> Place:
    """Return a traceback's innermost line of user code (see `_describe_line`); Nones if none."""
    frame = user_lines.find_user_frame(
        reversed(tb.extract_tb(traceback)), lambda frame: frame.filename
    )
    if frame is None:
        return None, None
    return f"{frame.filename}:{frame.lineno} in {frame.name}", frame.line


def _compute_exception_status(kind: type[BaseException]) -> int:
    """Return the exit status of a process that an uncaught exception of this class ends."""
    if not issubclass(kind, KeyboardInterrupt):
        return 1
    from _signal import SIGINT  # without signal's own imports

    return compute_signal_status(SIGINT)


def _compute_exit_status(code: Any) -> int:
    """Return the exit status for the argument of sys.exit()."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _format_exit_code(code: Any) -> str:
    """Return the text that Python prints for the argument of sys.exit(); "" for a number."""
    if code is None or isinstance(code, int):
        return ""
    try:
        return str(code)[:_MOST_TEXT]
    except Exception:  # it cannot be printed
        return ""


def _find_traceback(outermost: FrameType) -> TracebackType | None:
    """Return the traceback of the exception that has left this frame; None if not found.

    Needed up to Python 3.11, where an uncaught SystemExit has no `__traceback__`.
    """
    import gc
    from types import TracebackType

    for found in gc.get_referrers(outermost):
        if isinstance(found, TracebackType) and found.tb_lasti == outermost.f_lasti:
            return found
    return None


def _make_handled_fields(error: BaseException | None) -> dict[str, Any]:
    """Return the fields for the exception that was being handled at an exit; {} if none."""
    while isinstance(error, SystemExit):  # a caught exit explains nothing
        error = error.__context__
    if error is None:
        return {}
    return {
        "handled": summarize_exception(error, error.__traceback__),
        "causes": _list_causes(error),
    }


def _find_handled(error: BaseException) -> Raised | None:
    """Return the first exception in whose clearing up, such as a `finally:`, this one was raised.

    None if there is none. The exceptions that led to one by `raise ... from` are its causes.
    """
    chain = [error]
    while (below := _get_context(chain[-1])) is not None and below not in chain:
        chain.append(below)
    told = map(summarize_handled, reversed(chain[1:]))
    return next((raised for raised in told if raised is not None), None)


def _get_context(error: BaseException) -> BaseException | None:
    """Return the exception that was being handled when this one was raised; None if none was.

    JAX moves it to an exception without meaning, which it makes the cause.
    """
    cause = error.__cause__
    if cause is not None and type(cause).__name__ == "UnfilteredStackTrace":
        error = cause
    return None if error.__suppress_context__ else error.__context__


def summarize_handled(error: BaseException) -> Raised | None:
    """Summarize an exception that is being handled; None if it is not of the user's code."""
    told = summarize_exception(error, error.__traceback__)
    if told.where is None or not source_lines.is_users(told.where):
        return None
    return told.copy_with(summary=told.summary[:_MOST_OF_CAUSE])


def _list_causes(error: BaseException | None) -> tuple[Raised, ...]:
    """Return an exception's chain of causes, with the members of exception groups."""
    found: list[Raised] = []
    ahead = _list_direct_causes(error)
    seen = {id(error)}
    while ahead and len(found) < _MOST_CAUSES:
        cause, inside = ahead.pop(0)
        if id(cause) in seen:  # a chain may be a circle
            continue
        seen.add(id(cause))
        if not hasattr(cause, "exceptions") or not inside:
            told = summarize_exception(cause, cause.__traceback__, inside=inside)
            found.append(told.copy_with(summary=told.summary[:_MOST_OF_CAUSE]))
        ahead = _list_direct_causes(cause) + ahead
    return tuple(found)


def _list_direct_causes(error: BaseException | None) -> list[tuple[BaseException, bool]]:
    """Return an exception's cause and its group's members, each with True if it is a member."""
    if error is None:
        return []
    cause = error.__cause__
    behind = [(cause, False)] if cause is not None else []
    inside = getattr(error, "exceptions", None) or ()  # also a backport's exception group
    return behind + [(member, True) for member in inside if isinstance(member, BaseException)]


def _format_traceback(exception: tb.TracebackException) -> str:
    """Format a traceback without the frames of the hook, of runpy and of JAX's internals."""
    util: ModuleType | None = sys.modules.get("jax._src.traceback_util")
    marked = tuple(map(str, getattr(util, "_exclude_paths", ())))  # JAX's own
    ahead: list[Any] = [exception]
    while ahead:
        shown = ahead.pop()
        if shown is None:
            continue
        kept = [
            frame
            for frame in shown.stack
            if not frame.filename.startswith(marked)
            and source_lines.find_owner(frame.filename) != source_lines.OURS
            and frame.name not in _OF_RUNPY
        ]
        if kept:
            shown.stack[:] = kept
        notes = getattr(shown, "__notes__", None)
        if isinstance(notes, list):  # JAX's note that it has removed frames itself
            shown.__notes__ = [note for note in notes if "JAX has removed its internal" not in note]
        ahead += [shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())]
    return "".join(exception.format())


# --- exceptions that do not end the program: in threads and in JAX's callbacks ---
# The main thread may wait forever for what such a thread was to do, and other ranks for the program
# whose callback failed. They are reported to the launcher, which mentions them if the job hangs or
# fails.

# Most exceptions to report: some programs raise many on purpose.
_MOST = 32
_MOST_SUMMARY = 2_000
# JAX's loggers for exceptions of callbacks, and the end of their messages.
_LOGGERS = ("jax._src.callback", "jax._src.debugging")
_FAILED_CALLBACK = " failed"


class UnhandledErrors:
    """Reporter of unhandled exceptions that do not end this process (threads, callbacks).

    Args:
        link: the link to the agent.
        is_wanted: function that returns whether the program is in a job, or about to join it.

    """

    def __init__(self, link: AgentLink, is_wanted: Callable[[], bool]) -> None:
        self._link = link
        self._is_wanted = is_wanted
        self._count = 0

    def watch(self) -> None:
        """Report exceptions that end threads, and those in JAX's callbacks, which JAX only logs."""
        import logging
        import threading

        # Not `threading.excepthook`, which the program may set.
        make: Any = threading._make_invoke_excepthook  # type: ignore[attr-defined]
        threading._make_invoke_excepthook = lambda: self._report_before(make())  # type: ignore[attr-defined]
        for thread in threading.enumerate():
            if (known := getattr(thread, "_invoke_excepthook", None)) is not None:
                thread._invoke_excepthook = self._report_before(known)  # type: ignore[attr-defined]
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._handle_log_record)

    def _report_before(self, invoke: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return a function that reports a thread's last exception before it invokes its hook."""

        def report(thread: Any) -> None:
            error = sys.exc_info()[1]
            if not isinstance(error, SystemExit):
                self._report(getattr(thread, "name", ""), error)
            invoke(thread)

        return report

    def _handle_log_record(self, record: Any) -> bool:
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
            told = summarize_exception(error, error.__traceback__)
            file, _, line = (told.where or "").rpartition(" in ")[0].rpartition(":")
            told = told.copy_with(
                summary=told.summary[:_MOST_SUMMARY],
                where=f"{source_lines.format_path(file)}:{line}" if file else None,
            )
        except Exception:  # the exception cannot be examined; the program must go on
            return
        self._count += 1
        self._link.send(UnhandledError(thread, told, callback))
