"""How a rank's program ends: reported to the agent before JAX's exit barrier can hide it."""

from __future__ import annotations

import sys

from ...protocol import source_lines
from . import user_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from traceback import TracebackException
    from types import FrameType, ModuleType, TracebackType
    from typing import Any

    from ...protocol.hook_messages import Failed
    from .agent_link import AgentLink

_MOST_TEXT = 32_000


class Exits:
    """Sees every way out of the program, and reports the first that is a failure.

    `joined` is set once initialize() has returned: from then on JAX holds up the exit.
    """

    def __init__(self, link: AgentLink) -> None:
        self.joined = False
        self._link = link
        self._reported = False
        self._last_code: Any = None  # of the latest SystemExit, caught or not
        self._last_place: tuple[str, int, str] | None = None
        self._last_handled: tuple[str, str] | None = None
        # Of the main thread, from initialize() on: how it ended says how the program did.
        self._outermost_frame: FrameType | None = None

    def install(self) -> None:
        """See every way out of the program, from its first line on."""
        self._record_exits()
        self._watch_excepthook()

    def watch(self) -> None:
        """From initialize() on, report an uncaught exit or exception before JAX's barrier."""
        import atexit
        import threading

        if self._outermost_frame is not None:
            return
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        frame = sys._current_frames()[main_thread]
        while frame.f_back is not None:
            frame = frame.f_back
        self._outermost_frame = frame
        atexit.register(self._at_exit)  # after JAX's own, so it runs before
        self._watch_excepthook()  # the program may have replaced it

    def patch_threading(self, threading: Any) -> None:
        """Keep a thread's sys.exit() silent: the original hook looks for the one real class."""
        real = threading.excepthook

        def excepthook(args: Any) -> None:
            if not issubclass(args.exc_type, SystemExit):
                real(args)

        threading.excepthook = threading.__excepthook__ = excepthook

    # --- exceptions ---

    def _watch_excepthook(self) -> None:
        chain = sys.excepthook
        if getattr(chain, "_mcjax", False):
            return

        def excepthook(
            kind: type[BaseException], value: BaseException, traceback: TracebackType | None
        ) -> None:
            try:
                self._report_exception(kind, value, traceback)
            except ImportError:  # the program may have become a user who may not read us
                pass
            finally:
                chain(kind, value, traceback)

        excepthook._mcjax = True  # type: ignore[attr-defined]
        sys.excepthook = excepthook

    def _report_exception(
        self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        import traceback as tb

        try:
            text = _formatted(tb.TracebackException(kind, value, traceback))
            summary = "".join(tb.format_exception_only(kind, value)).strip()
        except Exception as error:  # an exception that cannot be printed
            text = summary = f"{kind.__name__} (cannot be shown: {error!r})"
        innermost_first = reversed(tb.extract_tb(traceback))
        frame = user_lines.users(innermost_first, lambda frame: frame.filename)
        module = getattr(value, "name", None) if isinstance(value, ImportError) else None
        from ...protocol.hook_messages import Failed

        self._report(
            Failed(
                _status_of(kind),
                self._in_job,
                exception=kind.__name__,
                summary=summary[:_MOST_TEXT],
                traceback=text[-_MOST_TEXT:],
                where=f"{frame.filename}:{frame.lineno} in {frame.name}" if frame else None,
                line=frame.line if frame else None,
                module=module if isinstance(module, str) else None,
                python=sys.executable,
            )
        )

    def _report(self, failed: Failed) -> None:
        """Say once that this process will end so, if that is a failure."""
        if failed.status and not self._reported:
            self._reported = True
            self._link.send(failed)

    @property
    def _in_job(self) -> bool:
        return self.joined or _jax_is_initialized()

    # --- exits ---

    def _record_exits(self) -> None:
        """See every SystemExit, from the program's first line on.

        Nothing in Python announces one that nobody catches: it reaches no excepthook, and `atexit`
        does not know the status. So the name leads to a subclass that remembers the last code.
        """
        import builtins

        exits, real = self, builtins.SystemExit

        class RecordedExit(SystemExit):
            def __init__(self, *args: object) -> None:
                super().__init__(*args)
                exits._last_code = self.code
                exits._last_handled = _handled()
                frame = user_lines.here()
                if frame is not None:
                    code = frame.f_code
                    exits._last_place = code.co_filename, frame.f_lineno, code.co_name

            def __del__(self) -> None:
                # Freed while no Python code runs: the interpreter is about to leave because of it.
                exits._report_if_ended_by_exit(1)

        RecordedExit.__name__ = RecordedExit.__qualname__ = real.__name__
        RecordedExit.__module__ = real.__module__
        RecordedExit.__doc__ = real.__doc__

        def exit(status: Any = None, /) -> None:  # noqa: A001
            """Exit the interpreter by raising SystemExit(status)."""
            raise RecordedExit(status)

        builtins.SystemExit = RecordedExit  # type: ignore[misc]
        sys.exit = exit  # type: ignore[assignment]
        if "threading" in sys.modules:
            self.patch_threading(sys.modules["threading"])

    def _at_exit(self) -> None:
        """Report what was not seen at once: a replaced excepthook, an exception somebody holds."""
        from ...protocol.hook_messages import Leaving

        uncaught = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if uncaught is not None and self._program_was_cut_off():
            self._report_exception(type(uncaught), uncaught, uncaught.__traceback__)
        self._report_if_ended_by_exit(0)
        self._link.send(Leaving())
        self._outermost_frame = None  # what is freed from now on means nothing

    def _report_if_ended_by_exit(
        self, caller: int, getframe: Callable[[int], FrameType] = sys._getframe
    ) -> None:
        """Report that the program has ended by a SystemExit, if no Python code runs above this."""
        if self._outermost_frame is None:
            return
        try:
            if caller and getframe(caller + 1):
                return
        except ValueError:
            pass
        import threading

        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._program_was_cut_off():
            self._report_exit(self._last_code)

    def _program_was_cut_off(self) -> bool:
        """Whether the outermost frame was left by an exception, not by returning."""
        import opcode

        frame = self._outermost_frame
        if frame is None:
            return False
        last = frame.f_code.co_code[frame.f_lasti]
        return not opcode.opname[last].startswith("RETURN")

    def _report_exit(self, code: Any) -> None:
        from ...protocol.hook_messages import Failed, HandledException

        status = 0 if code is None else code if isinstance(code, int) else 1
        where = line = None
        if self._last_place is not None:
            import linecache

            file, number, name = self._last_place
            where, line = f"{file}:{number} in {name}", linecache.getline(file, number).strip()
        handled = HandledException(*self._last_handled) if self._last_handled else None
        self._report(
            Failed(
                status & 0xFF, self._in_job, exited=True, where=where, line=line, handled=handled
            )
        )


def _status_of(kind: type[BaseException]) -> int:
    """The exit status of a process that this exception ends."""
    if not issubclass(kind, KeyboardInterrupt):
        return 1
    from _signal import SIGINT  # without signal's own imports

    from ...protocol.exit_status import of_signal

    return of_signal(SIGINT)


def _handled() -> tuple[str, str] | None:
    """The name and summary of the exception that is being handled: maybe the reason for an exit."""
    kind, value, _ = sys.exc_info()
    if kind is None:
        return None
    try:
        summary = str(value)[:_MOST_TEXT]
    except Exception:
        summary = ""
    return kind.__name__, summary


def _formatted(exception: TracebackException) -> str:
    """A traceback without the hook's frames and those that JAX marks as internal."""
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


def _jax_is_initialized() -> bool:
    try:
        return bool(sys.modules["jax"].distributed.is_initialized())
    except Exception:
        return False
