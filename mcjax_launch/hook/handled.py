"""Exceptions that a program is handling while it launches programs over several processes.

A `finally:` or `with` that computes with the other ranks waits for ranks that do not come: Python
has not reported the exception by then, and if JAX aborts the process, never will.
"""

from __future__ import annotations

import sys

from ..wire.hook_messages import Handling
from . import user_lines, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .agent_link import AgentLink

# Most exceptions to report: a program may raise, handle and compute again and again.
_MOST = 32


class HandledErrors:
    """Reporter of the exception that a thread is handling when it launches a program.

    Args:
        link: the link to the agent.

    """

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._latest = 0  # its id
        self._count = 0

    def watch(self) -> None:
        """Look at each program that JAX's Python code launches, from now on."""

        def around(real: Any, execution: Any, args: Any) -> Any:
            error = sys.exc_info()[1]
            if error is not None and id(error) != self._latest:
                self._report(error)
            return real(execution, *args)

        try:
            wrapping.intercept_launches(around)
        except (ImportError, AttributeError):  # an unknown version of JAX
            pass

    def _report(self, error: BaseException) -> None:
        """Report an exception once; the program goes on."""
        from . import failure

        self._latest = id(error)
        if self._count >= _MOST:
            return
        self._count += 1
        try:
            told = failure.summarize_handled(error)
            if told is not None:
                self._link.send(Handling(told, user_lines.find_current_line()))
        except Exception:  # the exception cannot be examined
            pass
