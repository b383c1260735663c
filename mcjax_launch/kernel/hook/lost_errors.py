"""Exceptions of threads, of futures that nobody reads, of JAX's callbacks: no failures themselves.

The main thread may wait for ever for what such a thread was to do, and other ranks for the program
whose callback failed. The launcher is told of them, and tells them in its turn where the job hangs
or fails.
"""

from __future__ import annotations

import sys

from ..wire.hook_messages import ErrorLost, ErrorRead
from . import failure, uncaught, user_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .agent_link import AgentLink

# A program may go through more of them on purpose.
_MOST = 32
_MOST_TEXT = 2_000
# The attribute of a future that holds one: its number.
_NUMBER = "_mcjax_launch_error"
# JAX's loggers of what callbacks raise, and how it says so.
_LOGGERS = ("jax._src.callback", "jax._src.debugging")
_FAILED_CALLBACK = " failed"


class LostErrors:
    """Reports those of this process.

    Args:
        link: to the agent.
        is_wanted: whether the program takes part in a job, or is about to.

    """

    def __init__(self, link: AgentLink, is_wanted: Callable[[], bool]) -> None:
        self._link = link
        self._is_wanted = is_wanted
        self._count = 0

    def watch_threads(self) -> None:
        """See the exceptions that end threads, from now on."""
        import threading

        def prepare(*args: Any) -> tuple[Any, ...]:
            if len(args) == 1 and not issubclass(args[0].exc_type, SystemExit):
                thread = getattr(args[0].thread, "name", "")
                self._report(thread, args[0].exc_value)
            return args

        threading.excepthook = uncaught.StandIn(threading.excepthook, prepare, "threading")

    def watch_callbacks(self) -> None:
        """See what JAX's callbacks raise, from now on: it logs that where it happens."""
        import logging

        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._see_logged)

    def _see_logged(self, record: Any) -> bool:
        if record.exc_info and str(record.msg).endswith(_FAILED_CALLBACK):
            callback = record.msg[: -len(_FAILED_CALLBACK)]
            self._report(record.threadName, record.exc_info[1], callback=callback)
        return True

    def patch_futures(self, base: Any) -> None:
        """See the exceptions that futures are given, and who reads them.

        Where a future keeps its own: what wraps `result()` would be seen in users' tracebacks.

        Args:
            base: the module concurrent.futures._base.

        """
        base.Future._exception = _Kept(self)

    def read(self, number: int) -> None:
        """The exception of a future with this number has been read."""
        self._link.send(ErrorRead(number))

    def of_future(self, error: BaseException) -> int:
        """A future has been given an exception; its number, 0 if it is not reported."""
        import threading

        return self._report(threading.current_thread().name, error, of_future=True)

    def _report(
        self,
        thread: str,
        error: BaseException | None,
        *,
        of_future: bool = False,
        callback: str = "",
    ) -> int:
        if error is None or self._count >= _MOST or not self._is_wanted():
            return 0
        try:
            told = failure.raised(error, error.__traceback__)
            file, _, line = (told.where or "").rpartition(" in ")[0].rpartition(":")
            told = told.replaced(
                summary=told.summary[:_MOST_TEXT],
                where=f"{user_lines.shown(file)}:{line}" if file else None,
            )
        except Exception:  # an exception that cannot be looked at: the program comes first
            return 0
        self._count += 1
        self._link.send(ErrorLost(self._count, thread, told, of_future, callback))
        return self._count


class _Kept:
    """The attribute in which futures keep their exceptions; reports what it is given, and reads.

    Args:
        errors: to report to.

    """

    def __init__(self, errors: LostErrors) -> None:
        self._errors = errors

    def __set__(self, future: Any, error: BaseException | None) -> None:
        future.__dict__["_exception"] = error
        if error is not None and (number := self._errors.of_future(error)):
            future.__dict__[_NUMBER] = number

    def __get__(self, future: Any, owner: type | None = None) -> Any:
        if future is None:
            return self
        kept = future.__dict__
        if _NUMBER in kept and sys._getframe(1).f_code.co_name != "__repr__":
            self._errors.read(kept.pop(_NUMBER))
        try:
            return kept["_exception"]
        except KeyError:
            raise AttributeError("_exception") from None
