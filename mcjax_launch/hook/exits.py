"""Ends of a rank's program, reported to the agent before JAX's exit barrier can hide them."""

from __future__ import annotations

import _thread
import os
import sys

from .wrapping import CallableProxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any

    from ..wire.hook_messages import Failed, Raised
    from .agent_link import AgentLink
    from .failed_tests import FailedTests
    from .part import Parts


# --- noticing what ends a program, without disturbing it ---
# Python calls sys.excepthook with an uncaught exception. It announces no exit, but it reads the
# SystemExit's attribute `code`.


def is_watched() -> bool:
    """Return whether a hook is installed in this process; up to 3.11, in any subinterpreter."""
    return isinstance(SystemExit.__dict__["code"], property)


def watch_exceptions(
    uncaught: Callable[[type[BaseException], BaseException, TracebackType | None], None],
) -> None:
    """Call `uncaught` with each exception that Python or the program passes to sys.excepthook."""

    def prepare(*args: Any) -> tuple[Any, ...]:
        if len(args) == 3:
            uncaught(*args)
        return args

    is_original = sys.excepthook is sys.__excepthook__
    sys.excepthook = CallableProxy(sys.excepthook, prepare)
    if is_original:  # programs compare the two
        sys.__excepthook__ = sys.excepthook


def watch_hard_exits(exits: Callable[[int], None]) -> None:
    """Call `exits` with the status of each os._exit(), before the exit."""

    def prepare(*args: Any) -> tuple[Any, ...]:
        if len(args) == 1 and isinstance(args[0], int):
            exits(args[0])
        return args

    os._exit = CallableProxy(os._exit, prepare, "os")


def watch_exits(exits: Exits) -> None:
    """Call `exits.handle_exit` when a SystemExit is uncaught, before Python shuts down.

    Replaces SystemExit.code in the class's own dictionary, the only way for a built-in class. The
    replacement outlives all of Python's other objects, so it holds `exits` by a weak reference.
    """
    import gc
    from _weakref import ref  # without weakref's own imports

    real: Any = SystemExit.__dict__["code"]
    get, getframe, watcher = real.__get__, sys._getframe, ref(exits)

    def code(error: SystemExit) -> Any:
        try:
            getframe(1)
        except ValueError:  # Python itself reads it, not Python code
            exits = watcher()
            if exits is not None:
                exits.handle_exit(error)
        return get(error)

    (attributes,) = gc.get_referents(SystemExit.__dict__)
    attributes["code"] = property(code, real.__set__, real.__delete__, real.__doc__)
    if sys.version_info < (3, 12):
        # There it raises only the status, and Python makes an exception of it when it is caught.
        sys.exit = CallableProxy(sys.exit, _as_exit)


def _as_exit(*args: Any) -> tuple[Any, ...]:
    """Return arguments for sys.exit() in which the status is replaced by a SystemExit."""
    status = args[0] if args else None
    if len(args) > 1 or isinstance(status, SystemExit):
        return args
    if status is None:
        return (SystemExit(),)
    return (SystemExit(*status) if isinstance(status, tuple) else SystemExit(status),)


# --- reported before JAX's exit barrier can hide it ---


class Exits:
    """Reporter of failures that end the program.

    Attributes:
        joined: True while the process is in the job, from initialize() to shutdown(): JAX then
            delays its exit.
        has_failed: True once the failure with which this process will end is reported.

    Args:
        link: the link to the agent.
        failed: called with each exception that the hook itself raises.
        parts: features' parts, which get the exception before it is reported.

    """

    def __init__(
        self,
        link: AgentLink,
        failed: Callable[[Exception], None],
        parts: Parts,
    ) -> None:
        self.joined = False
        self._parts = parts
        self._link = link
        self._failed = failed
        self.has_failed = False
        self._over = False
        self._main_thread = _thread.get_ident()
        # The main thread's outermost frame, from initialize() on: the program ends with it.
        self._outermost: FrameType | None = None
        self._tests: FailedTests | None = None
        # The last exception that a program such as `coverage run` has caught and shown.
        self._shown: Raised | None = None

    @property
    def tests(self) -> FailedTests:
        """Record of the tests that have failed in this process; empty without a test runner."""
        if self._tests is None:
            from .failed_tests import FailedTests

            self._tests = FailedTests(self._link)
        return self._tests

    def install(self) -> None:
        """Watch uncaught exceptions and exits, from the program's first line on."""
        import atexit

        watch_exceptions(self._handle_exception)
        watch_exits(self)
        atexit.register(self._link.report_end)  # the first one, so it runs last

    def watch(self) -> None:
        """Report os._exit(), crashes, shutdown, and unhandled errors in threads and callbacks too.

        Called when the rank calls initialize(); `install` reports exceptions and exits before.
        """
        import atexit
        import threading

        from . import failure  # the program may become a user who may not read it later

        if self._outermost is not None:
            return
        raise_dropped_interrupts()
        self._outermost = _find_outermost(sys._current_frames()[self._main_thread])
        watch_hard_exits(self._handle_hard_exit)
        failure.UnhandledErrors(self._link, lambda: self._outermost is not None).watch()
        if self._link.is_of_this_process:
            self._link.dump_stacks_on_crash()
        # Called when the main thread has ended, before Python waits for other threads.
        threading._register_atexit(self._handle_shutdown)  # type: ignore[attr-defined]
        atexit.register(self._leave)  # after JAX's own, so it runs before

    def handle_exit(self, error: SystemExit) -> None:
        """Report an uncaught SystemExit with a failure status, if it ends the main thread."""
        code = error.code  # read by Python code, so it does not count as an exit
        is_fine = code is None or (isinstance(code, int) and not code & 0xFF)
        if self._over or is_fine or _thread.get_ident() != self._main_thread:
            return

        def report() -> None:
            from . import failure

            self._report(failure.describe_exit(code, error, self._outermost, joined=self._in_job))

        self._try(report)

    def _handle_hard_exit(self, code: int) -> None:
        """Report an os._exit() with a failure status, in any thread or in the program's excepthook.

        The agent gets the status when the process ends; this report explains that status.
        """
        if not self._link.is_of_this_process or not code & 0xFF:
            return

        def report() -> None:
            from . import failure, user_lines

            error = sys.exc_info()[1] or self._find_uncaught()
            frame = user_lines.find_current_frame()
            self._report(failure.describe_hard_exit(code, error, frame))

        self._try(report)

    def _find_uncaught(self) -> BaseException | None:
        """Return the exception if the program's own excepthook is running for one; else None."""
        if _thread.get_ident() != self._main_thread or self._outermost is None:
            return None
        value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        return value if _find_outermost(sys._getframe()) is not self._outermost else None

    # --- what ends the program ---

    def _handle_exception(
        self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        """Report an exception passed to sys.excepthook, if it has ended the program."""
        if self._outermost is None and issubclass(kind, KeyboardInterrupt):
            return  # a report's imports would make Python forget to die of the signal

        def report() -> None:
            if self.has_failed:
                return
            from . import failure

            if not self._has_left(traceback):
                self._shown = failure.summarize_exception(value, traceback)
                return
            if traceback is not None:
                for part in self._parts.list_enabled():
                    part.on_failure(value, traceback)
            self._report(failure.describe_exception(kind, value, traceback, joined=self._in_job))

        self._try(report)

    def _handle_shutdown(self) -> None:
        """Report the uncaught exception now if the program has replaced our sys.excepthook."""
        value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if value is not None and self._outermost is not None and _was_cut_off(self._outermost):
            self._handle_exception(type(value), value, value.__traceback__)

    def _has_left(self, traceback: TracebackType | None) -> bool:
        """Return whether an exception has left the program's outermost frame, so has ended it.

        A program that calls sys.excepthook with an exception that it has caught goes on.
        """
        if sys.flags.inspect or _thread.get_ident() != self._main_thread:
            return False
        running = _find_outermost(sys._getframe())
        if traceback is None:  # the program could not be compiled
            return self._outermost is None and running.f_code is CallableProxy.__call__.__code__
        frame = traceback.tb_frame
        is_outermost = frame.f_back is None and self._outermost in (None, frame)
        return is_outermost and frame is not running

    # --- reports ---

    def _try(self, report: Callable[[], object]) -> None:
        """Call a function; the program must not fail for the hook."""
        try:
            report()
        except ImportError:  # the program may have become a user who may not read us
            pass
        except Exception as error:
            self._failed(error)

    def _report(self, failed: Failed) -> None:
        """Report once the failure with which this process will end; do nothing for status 0."""
        if failed.status and not self.has_failed:
            from . import barriers, failure

            self.has_failed = True
            cause = {} if self._tests is None else self._tests.as_cause()
            if not cause and self._shown is not None:
                cause = {"handled": self._shown}
            self._link.send(failure.add_explanation(failed, cause))
            if failed.joined:
                barriers.postpone(failed.status)

    @property
    def _in_job(self) -> bool:
        return self.joined or _is_jax_initialized()

    def _leave(self) -> None:
        from ..wire.hook_messages import Leaving

        self._link.send(Leaving())
        self._over = True
        self._outermost = None  # frees what the frame holds


def _find_outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _was_cut_off(frame: FrameType) -> bool:
    """Return whether an exception, not a return statement, has ended a frame."""
    import opcode

    return not opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def _is_jax_initialized() -> bool:
    try:
        return bool(sys.modules["jax"].distributed.is_initialized())
    except Exception:
        return False


# --- Ctrl-C during a callback of the garbage collector, where Python drops a KeyboardInterrupt ---

# Seconds after which the main thread has left the callback.
_BEHIND_S = 0.01
# What Python 3.14 says instead of giving the callback.
_SAID = "Exception ignored while calling GC callback"


def raise_dropped_interrupts() -> None:
    """Raise KeyboardInterrupt again, behind the callback, whenever Python drops it there."""
    import gc
    import time

    show = sys.unraisablehook

    def interrupt() -> None:
        time.sleep(_BEHIND_S)
        _thread.interrupt_main()

    def on_dropped(dropped: Any) -> None:
        of_callback = dropped.object in gc.callbacks or (dropped.err_msg or "").startswith(_SAID)
        if dropped.exc_type is KeyboardInterrupt and of_callback:
            _thread.start_new_thread(interrupt, ())
        else:
            show(dropped)

    sys.unraisablehook = on_dropped
