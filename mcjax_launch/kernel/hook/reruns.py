"""Whether a rank still runs programs, reported on request.

JAX runs a known program without Python. A signal empties its caches of how to do that, so that
the next call of each goes through Python once more, where we see it. Nothing is compiled again.
The launcher asks ranks on accelerators, whose processors are busy while they hang.
"""

from __future__ import annotations

import _thread
import sys

from ..wire import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_CACHES = ("_cpp_pjit_cache_fun_only", "_cpp_pjit_cache_explicit_attributes")
# What C++ calls while it reads a cache: one that is emptied meanwhile crashes it.
_IN_A_CACHE = ("__eq__", "__hash__", "__ne__", "__del__")
# A main thread that uses less of a core than this only waits.
_BUSY = 1e-4


class Reruns:
    """Sees that a known program runs again, once for each time that the launcher asks.

    Args:
        tell: called when some program has run since the launcher has asked.

    Attributes:
        is_asked: nothing has run since then.

    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.is_asked = False
        self._tell = tell
        self._used_s = self._used_at = 0.0  # of the main thread, when the launcher last asked
        self._caches: list[Any] = []
        self._is_busy = False
        self._main_thread: int | None = None
        # Whether other threads run programs too: one may fill a cache again while another reads
        # it.
        self._is_shared = False

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

    def ran(self) -> None:
        """A program runs through Python: report it, if that was asked for."""
        self.see_thread()
        if self.is_asked:
            self.is_asked = False
            self._tell()


def _is_in_a_cache(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _IN_A_CACHE:
            return True
        frame = frame.f_back
    return False
