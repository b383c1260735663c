"""Calls from a job's thread into an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

# With more calls than this on their way the job's thread waits: so do, soon, its ranks.
_MOST = 10_000
_LOOK_S = 1.0


class InLoop:
    """Has a loop call functions, in order.

    Args:
        loop: of the caller's; if it is closed, nobody is called any more.

    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way = 0
        self._room = threading.Condition()

    def __call__(self, call: Callable[[], object]) -> None:
        """Have it called, soon."""
        with self._room:
            while self._under_way >= _MOST and not self._loop.is_closed():
                self._room.wait(_LOOK_S)
            self._under_way += 1
        try:
            self._loop.call_soon_threadsafe(self._call, call)
        except RuntimeError:  # it is closed
            pass

    def _call(self, call: Callable[[], object]) -> None:
        call()
        with self._room:
            self._under_way -= 1
            self._room.notify()
