"""--profile: runs JAX's profiler in every rank for the same few seconds.

It prints nothing: `folders.merge` reports the result once for all ranks. JAX records one trace at a
time, so our trace ends if the program begins its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from ...hook.part import RankPart
from ...machine import own_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

_OWN_TRACE = "the program began its own trace; --profile DIR@D sets when the launcher's begins"


class Profiler(RankPart):
    """Part that records a trace while the program runs."""

    def on_join(self) -> None:
        """Begin to profile; SIGPROF begins further traces, unless the program handles it itself."""
        import atexit

        # Seconds to wait, seconds to trace, and the folder.
        after, length, folder = self.asked.split(" ", 2)
        profile = _Profile(float(after), float(length), folder)
        atexit.register(profile.finish)  # after JAX's own, so it runs before
        profile.thread.start()
        _handle(signal.SIGPROF, lambda signum, frame: profile.begin())


class _Profile:
    def __init__(self, after_s: float, length_s: float, folder: str) -> None:
        self._after_s = after_s
        self._length_s = length_s
        self._folder = folder
        self._program_is_over = False
        # Ends the current trace; each trace has its own event.
        self._end = threading.Event()
        # True: begin a trace now; False: end. A signal handler may use this kind of queue.
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._traces: list[tuple[float, str, float]] = []
        self._pid = os.getpid()
        self.thread = threading.Thread(target=self._run, name="mcjax-profile", daemon=True)

    def finish(self) -> None:
        """Write what has been recorded, because the program is over."""
        if os.getpid() == self._pid:
            self._program_is_over = True
            self._end.set()
            self._asked.put(False)
            self.thread.join()

    def begin(self) -> None:
        """Begin a further trace; a signal handler may call this."""
        self._asked.put(True)

    def _run(self) -> None:
        try:
            wanted = self._asked.get(timeout=self._after_s)
        except Empty:
            wanted = True
        if not wanted:
            within = f"the program ended within {self._after_s:g} s; --profile DIR@D begins sooner"
            self._write_trace_list(why=within)
        while wanted:
            try:
                why = self._record_trace()
            except Exception as error:
                why = _OWN_TRACE if "already been started" in str(error) else repr(error)
            while not self._asked.empty() and wanted:  # requests during that trace
                wanted = self._asked.get()
            # Before waiting: a reader of the file may then request another trace.
            self._write_trace_list(why)
            wanted = wanted and self._asked.get()

    def _record_trace(self) -> str:
        """Record and write one trace; return why it is incomplete, "" if it is complete."""
        import jax

        own_paths.make_folder(self._folder)
        jax.devices()  # or the profiler would first wait for them
        self._end = threading.Event()
        if self._program_is_over:
            self._end.set()
        with _ending_on_conflict(self._end):
            began = time.time()
            jax.profiler.start_trace(self._folder, **_make_profiler_options(jax))
            gives_way = self._end.wait(self._length_s) and not self._program_is_over
            seconds = time.time() - began
            jax.profiler.stop_trace()
        self._traces.append((began, _find_newest_trace(self._folder), seconds))
        return _OWN_TRACE if gives_way else ""

    def _write_trace_list(self, why: str) -> None:
        """Write the file that lists the traces; `why`: why a trace is missing, "" if none is."""
        with suppress(OSError):
            began = os.path.join(self._folder, "began.json")
            with open(own_paths.open_file(began, os.O_TRUNC), "w") as file:
                json.dump([*self._traces, *([why] if why else [])], file)


@contextmanager
def _ending_on_conflict(end: threading.Event) -> Iterator[None]:
    """Set `end` when another thread uses the profiler, and hold that thread until our trace ends.

    All functions of JAX's profiler first acquire one lock, however the program calls them.
    """
    state: Any = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
    lock = getattr(state, "lock", None)
    if lock is None:  # an unknown version of JAX
        yield
        return
    state.lock = proxy = _LockProxy(lock, end)
    try:
        yield
    finally:
        state.lock = lock
        proxy.over.set()


class _LockProxy:
    """Proxy of the lock of JAX's profiler, while the thread that makes it records a trace.

    Attributes:
        over: set once that trace is written.

    """

    def __init__(self, lock: Any, end: threading.Event) -> None:
        self.over = threading.Event()
        self._lock = lock
        self._end = end
        self._pid, self._thread = os.getpid(), threading.get_ident()

    def __enter__(self) -> None:
        if self._thread != threading.get_ident() and self._pid == os.getpid():
            self._end.set()
            self.over.wait()
        self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)


def _make_profiler_options(jax: Any) -> dict[str, Any]:
    """Return options that keep the profiler from recording each call of a Python function."""
    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


def _find_newest_trace(folder: str) -> str:
    """Return the newest trace below `folder`; the profiler names files by the second."""
    found = [
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(".trace.json.gz")
    ]
    return os.path.relpath(max(found, key=os.path.getmtime), folder)


def _handle(signum: int, handler: Callable[[int, FrameType | None], object]) -> bool:
    """Install a signal's handler until Python ends; return whether that succeeded."""
    import atexit

    try:
        if signal.getsignal(signum) is not signal.SIG_DFL:  # the program's own handler
            return False
        signal.signal(signum, handler)
        signal.siginterrupt(signum, False)  # C code may not expect it
    except (ValueError, OSError):  # not in the main thread
        return False
    # At its end Python restores the default action, which kills, and a signal may be pending.
    atexit.register(signal.signal, signum, signal.SIG_IGN)
    return True


PART = Profiler
