"""--profile: runs JAX's profiler in every rank for the same few seconds."""

from __future__ import annotations

import os
import threading

from ...hook.part import RankPart
from ...machine import own_paths
from .messages import Profiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...hook.agent_link import AgentLink

# Length of a trace.
_LENGTH_S = 5.0


class Profiler(RankPart):
    """Part that records a trace while the program runs."""

    def on_join(self, *, is_alone: bool) -> None:
        """Begin a trace after a while; at the program's end write what has been recorded."""
        import atexit

        after, folder = self.asked.split(" ", 1)  # seconds from now
        profile = _Profile(self.link, float(after), folder)
        profile.thread.start()
        atexit.register(profile.finish)  # after JAX's own, so it runs before


class _Profile:
    def __init__(self, link: AgentLink, after_s: float, folder: str) -> None:
        self._link = link
        self._after_s = after_s
        self._folder = folder
        self._pid = os.getpid()
        self._is_over = threading.Event()  # the program
        self.thread = threading.Thread(target=self._run, name="mcjax-profile", daemon=True)

    def finish(self) -> None:
        """Wait until what has been recorded is written, because the program is over."""
        if os.getpid() == self._pid:
            self._is_over.set()
            self.thread.join()

    def _run(self) -> None:
        if self._is_over.wait(self._after_s):
            within = f"the program ended within {self._after_s:g} s; --profile DIR@D begins sooner"
            self._link.send(Profiled(within))
            return
        try:
            self._record_trace()
            self._link.send(Profiled())
        except Exception as error:  # such as a trace of the program's own, or no room
            self._link.send(Profiled(str(error) or repr(error)))

    def _record_trace(self) -> None:
        import jax

        own_paths.make_folder(self._folder)
        jax.devices()  # or the profiler would first wait for them
        jax.profiler.start_trace(self._folder, **_make_options(jax))
        self._is_over.wait(_LENGTH_S)
        jax.profiler.stop_trace()


def _make_options(jax: Any) -> dict[str, Any]:
    """Return options that keep the profiler from recording each call of a Python function."""
    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


PART = Profiler
