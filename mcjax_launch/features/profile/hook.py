"""--profile: JAX's profiler, on for the same few seconds in every rank.

Nothing is printed: `folders.merge` tells at the end what there is, once for all ranks.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from ...kernel.hook.part import RankPart
from ...kernel.wire import hook_environ
from ...kernel.wire.signals import PROFILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Profiling(RankPart):
    """Has a trace written while the program goes on."""

    def joined(self) -> bool:
        """Begin; whether the launcher's signal begins another."""
        import atexit

        # The seconds from now on to wait, those to trace, and the folder.
        after, length, folder = self.environ[hook_environ.PROFILE].split(" ", 2)
        profile = _Profile(float(after), float(length), folder)
        atexit.register(profile.finish)  # after JAX's own, so it runs before
        heeds = profile.heed_signal()
        profile.thread.start()
        return heeds


class _Profile:
    def __init__(self, after_s: float, length_s: float, folder: str) -> None:
        self._after_s = after_s
        self._length_s = length_s
        self._folder = folder
        self._program_is_over = threading.Event()
        # A trace is wanted now, or none any more. A queue that a signal's handler may use.
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._traces: list[tuple[float, str, float]] = []
        self._pid = os.getpid()
        self.thread = threading.Thread(target=self._run, name="mcjax-profile", daemon=True)

    def finish(self) -> None:
        """The program is over: write what there is."""
        if os.getpid() == self._pid:
            self._program_is_over.set()
            self._asked.put(False)
            self.thread.join()

    def heed_signal(self) -> bool:
        """Begin a trace whenever the launcher's signal comes, unless it is the program's own.

        Returns:
            whether that is so.

        """
        try:
            if signal.getsignal(PROFILE) is not signal.SIG_DFL:
                return False
            signal.signal(PROFILE, lambda signum, frame: self._asked.put(True))
            signal.siginterrupt(PROFILE, False)  # C code may not expect to be interrupted
        except (ValueError, OSError):  # not in the main thread
            return False
        return True

    def _run(self) -> None:
        try:
            wanted = self._asked.get(timeout=self._after_s)
        except Empty:
            wanted = True
        if not wanted:
            within = f"the program was over within {self._after_s:g} s; see --profile-after"
            self._note(why=within)
        while wanted:
            why = ""
            try:
                self._trace()
            except Exception as error:  # the program may have started the profiler itself
                why = repr(error)
            while not self._asked.empty() and wanted:  # they came during that trace
                wanted = self._asked.get()
            self._note(why)  # who sees that may ask for another
            wanted = wanted and self._asked.get()

    def _trace(self) -> None:
        import jax

        os.makedirs(self._folder, exist_ok=True)
        jax.devices()  # or the profiler would first wait for them
        began = time.time()
        jax.profiler.start_trace(self._folder, **_without_python(jax))
        self._program_is_over.wait(self._length_s)
        seconds = time.time() - began
        jax.profiler.stop_trace()
        self._traces.append((began, _newest_trace(self._folder), seconds))

    def _note(self, why: str) -> None:
        """Write down what there is, and why there is not more."""
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            with open(os.path.join(self._folder, "began.json"), "w") as file:
                json.dump([*self._traces, *([why] if why else [])], file)


def _without_python(jax: Any) -> dict[str, Any]:
    """Options without a tracer that records each call of a Python function."""
    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


def _newest_trace(folder: str) -> str:
    """From `folder`; the profiler names what it writes by the second."""
    found = [
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(".trace.json.gz")
    ]
    return os.path.relpath(max(found, key=os.path.getmtime), folder)


PART = Profiling
