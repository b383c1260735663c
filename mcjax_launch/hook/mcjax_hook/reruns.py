"""Which of the programs that it has run before a rank still runs, reported on request.

JAX runs a known program without Python. A signal empties its caches of how to do that, so that
the next call of each goes through Python once more, where we see it. Nothing is compiled again.
That any program has run is said of every rank, and which with --verify-spmd.
"""

from __future__ import annotations

import _thread
import sys

from ...protocol import system
from . import replica_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from .spmd_program import SpanningProgram

_CACHES = ("_cpp_pjit_cache_fun_only", "_cpp_pjit_cache_explicit_attributes")
# What C++ calls while it reads a cache: one that is emptied meanwhile crashes it.
_IN_A_CACHE = ("__eq__", "__hash__", "__ne__", "__del__")
_MOST_KNOWN = 1024
# A main thread that uses less of a core than this only waits.
_BUSY = 1e-4


class _Known:
    """A program that has run: for which request it was last reported, and who must run it too."""

    def __init__(self, program: SpanningProgram, name: str, request: int) -> None:
        self.program = program
        self.name = name
        self.request = request
        self.partners: list[int] | None = None


class Reruns:
    """Sees known programs run again, once for each time that the launcher asks.

    Args:
        report: is given what still runs: the program, the number of the request, and the processes
            that have to run it too.
        tell: called when some program has run since the launcher has asked.

    Attributes:
        is_asked: nothing has run since then.

    """

    def __init__(
        self,
        report: Callable[[SpanningProgram, int, list[int]], None],
        tell: Callable[[], None],
    ) -> None:
        self.is_asked = False
        self._report = report
        self._tell = tell
        self._used_s = self._used_at = 0.0  # of the main thread, when the launcher last asked
        self._request = 0  # the number of the launcher's latest
        self._caches: list[Any] = []
        self._is_busy = False
        self._main_thread: int | None = None
        # Whether other threads run programs too: one may fill a cache again while another reads
        # it.
        self._is_shared = False
        # By the id of an executable. JAX may run it through another object each time.
        self._known: dict[int, _Known] = {}

    def watch(self) -> int:
        """Act on the launcher's signal from now on; its number, 0 where that cannot be."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return 0  # a cache may not be emptied while other threads read it
        pjit = sys.modules.get("jax._src.pjit")
        caches = [getattr(pjit, name, None) for name in _CACHES]
        self._caches = [cache for cache in caches if hasattr(cache, "clear")]
        try:
            import signal

            signum = system.rerun_signal()
            # Another handler would be the program's own.
            if not self._caches or signal.getsignal(signum) is not signal.SIG_DFL:
                return 0
            signal.signal(signum, self._clear_caches)
            signal.siginterrupt(signum, False)  # C code may not expect to be interrupted
        except (AttributeError, ValueError, OSError):  # not in the main thread
            return 0
        self._main_thread = _thread.get_ident()
        return int(signum)

    def _clear_caches(self, _signum: int, _frame: FrameType | None) -> None:
        """Have every program that runs from now on go through Python once.

        This may happen between any two steps of the program; it is asked for again if not now.
        """
        if self._is_busy:
            return
        self._is_busy = True
        try:
            if self._is_shared:
                self._tell_if_busy()
            elif not any(map(_is_in_a_cache, sys._current_frames().values())):
                self._request += 1
                self.is_asked = True
                for cache in self._caches:
                    cache.clear()
        except Exception:
            pass
        finally:
            self._is_busy = False

    def _tell_if_busy(self) -> None:
        """Take Python code for a program that runs, where those of other threads are not seen.

        A main thread that is in a call of C does not come here before that returns.
        """
        import time

        used_s, now = time.thread_time(), time.monotonic()
        if used_s - self._used_s > _BUSY * (now - self._used_at):
            self._tell()
        self._used_s, self._used_at = used_s, now

    def see_thread(self) -> None:
        """Note that this thread runs programs."""
        if self._main_thread is not None and _thread.get_ident() != self._main_thread:
            self._is_shared = True

    def know(self, execution: Any, program: SpanningProgram) -> None:
        """Remember a program that spans processes and runs for the first time."""
        if len(self._known) >= _MOST_KNOWN:
            self.forget(next(iter(self._known)))
        known = _Known(program, execution.name, self._request)
        self._known[id(execution.xla_executable)] = known

    def forget(self, number: int) -> None:
        """Forget a program: another executable has its id now."""
        self._known.pop(number, None)

    def ran(self, execution: Any) -> None:
        """Report what runs through Python, if it has run before and that was asked for."""
        self.see_thread()
        if self.is_asked:
            self.is_asked = False
            self._tell()
        known = self._known.get(id(execution.xla_executable))
        # One that was not compiled here may have got the id of one that is gone.
        if known is None or known.request == self._request or known.name != execution.name:
            return
        known.request = self._request
        if known.partners is None:
            known.partners = _partners(execution, known.program)
        self._report(known.program, self._request, known.partners)


def _is_in_a_cache(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _IN_A_CACHE:
            return True
        frame = frame.f_back
    return False


def _partners(execution: Any, program: SpanningProgram) -> list[int]:
    try:
        text = execution.xla_executable.hlo_modules()[0].to_string()
    except Exception:  # a platform that does not show it
        return []
    return replica_groups.partners(text, program.places, program.own)
