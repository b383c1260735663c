"""How a rank's program ends: reported to the agent before JAX's exit barrier can hide it."""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any

    from ..wire.hook_messages import Failed
    from .agent_link import AgentLink
    from .failed_tests import FailedTests
    from .failure import UnhandledErrors
    from .part import Parts

# --- what ends a program, seen out of its way ---
# Python calls sys.excepthook with an exception that nobody has caught. An exit it announces
# nowhere, but it asks the SystemExit for its `code`.


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


# --- reported before JAX's exit barrier can hide it ---


class Exits:
    """Sees how the program ends, and reports it if that is a failure.

    `joined` is set while it is in the job: from initialize() to shutdown() JAX holds up its exit.

    Args:
        link: to report to.
        failed: is given what goes wrong in the hook itself.
        parts: see such an exception before it is reported.

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
        self._reported = False
        self._over = False
        self._main_thread = _thread.get_ident()
        # Of the main thread, from initialize() on: with it the program is over.
        self._outermost: FrameType | None = None
        self._lost: UnhandledErrors | None = None
        self._tests: FailedTests | None = None

    @property
    def tests(self) -> FailedTests:
        """The record of the failed tests of a runner in this process."""
        if self._tests is None:
            from .failed_tests import FailedTests

            self._tests = FailedTests()
        return self._tests

    @property
    def lost(self) -> UnhandledErrors:
        """What tells of exceptions that do not end the program."""
        if self._lost is None:
            from .failure import UnhandledErrors

            self._lost = UnhandledErrors(self._link, lambda: self._outermost is not None)
        return self._lost

    def install(self) -> None:
        """See every way out of the program, from its first line on."""
        watch_exceptions(self._see_exception)
        watch_exits(self)

    def watch(self) -> None:
        """From initialize() on, report an exit too, and what ends before JAX's barrier."""
        import atexit
        import threading

        from . import failure  # noqa: F401  # now: the program may become who may not read it

        if self._outermost is not None:
            return
        self._outermost = _outermost(sys._current_frames()[self._main_thread])
        watch_hard_exits(self._see_hard_exit)
        self.lost.watch_threads()
        self.lost.watch_callbacks()
        if self._link.is_of_this_process:
            self._link.dump_stacks_on_crash()
        # When the main thread has ended, and before others are waited for.
        threading._register_atexit(self._see_shutdown)  # type: ignore[attr-defined]
        atexit.register(self._leave)  # after JAX's own, so it runs before

    def see_exit(self, error: SystemExit) -> None:
        """Report an exit with a failure, if nothing is left of the program."""
        code = error.code  # known to Python code, so this is no way out
        is_fine = code is None or (isinstance(code, int) and not code & 0xFF)
        if self._over or is_fine or _thread.get_ident() != self._main_thread:
            return
        try:
            from . import failure

            self._report(failure.of_exit(code, error, self._outermost, joined=self._in_job))
        except ImportError:  # the program may have become a user who may not read us
            pass
        except Exception as error:
            self._failed(error)

    def _see_hard_exit(self, code: int) -> None:
        """Report an os._exit() with a failure: of any thread, or of the program's sys.excepthook.

        Its status comes at once; this says why.
        """
        if not self._link.is_of_this_process or not code & 0xFF:
            return
        try:
            from . import failure, user_lines

            error = sys.exc_info()[1] or self._uncaught()
            frame = user_lines.here()
            self._report(failure.of_hard_exit(code, error, frame))
        except ImportError:  # the program may have become a user who may not read us
            pass
        except Exception as error:
            self._failed(error)

    def _uncaught(self) -> BaseException | None:
        """The exception that Python has given to the program's own sys.excepthook, if it has."""
        if _thread.get_ident() != self._main_thread or self._outermost is None:
            return None
        value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        return value if _outermost(sys._getframe()) is not self._outermost else None

    # --- what ends the program ---

    def _see_exception(
        self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        """Report what sys.excepthook is given, if it has ended the program."""
        if self._outermost is None and issubclass(kind, KeyboardInterrupt):
            return  # the imports that a report takes make Python forget to die of the signal
        try:
            if not self._reported and self._has_left(traceback):
                from . import failure

                if traceback is not None:
                    for part in self._parts.asked():
                        part.failed(value, traceback)
                self._report(failure.of_exception(kind, value, traceback, joined=self._in_job))
        except ImportError:  # the program may have become a user who may not read us
            pass
        except Exception as error:  # the program comes first
            self._failed(error)

    def _see_shutdown(self) -> None:
        """Report what the program's own sys.excepthook, in place of ours, was given."""
        value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if value is not None and self._outermost is not None and _was_cut_off(self._outermost):
            self._see_exception(type(value), value, value.__traceback__)

    def _has_left(self, traceback: TracebackType | None) -> bool:
        """Whether an exception has left the program's outermost frame, and so has ended it.

        Whoever calls sys.excepthook with an exception that he has caught goes on.
        """
        if sys.flags.inspect or _thread.get_ident() != self._main_thread:
            return False
        running = _outermost(sys._getframe())
        if traceback is None:  # of a program that could not be compiled
            return self._outermost is None and running.f_code is StandIn.__call__.__code__
        frame = traceback.tb_frame
        is_outermost = frame.f_back is None and self._outermost in (None, frame)
        return is_outermost and frame is not running

    # --- reports ---

    def _report(self, failed: Failed) -> None:
        """Say once that this process will end so, if that is a failure."""
        if failed.status and not self._reported:
            from . import failure

            self._reported = True
            self._link.send(failure.explained(failed, self._tests))

    @property
    def _in_job(self) -> bool:
        return self.joined or _jax_is_initialized()

    def _leave(self) -> None:
        from ..wire.hook_messages import Leaving

        self._link.send(Leaving())
        self._over = True
        self._outermost = None  # and all that it holds may be freed


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _was_cut_off(frame: FrameType) -> bool:
    """Whether a frame was left by an exception, not by returning."""
    import opcode

    return not opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def _jax_is_initialized() -> bool:
    try:
        return bool(sys.modules["jax"].distributed.is_initialized())
    except Exception:
        return False
