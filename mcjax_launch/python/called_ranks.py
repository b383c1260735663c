"""Job whose ranks make calls of this program, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcjax_launch.python.calls import CallChannel
from mcjax_launch.python.events import Deliver, call_now
from mcjax_launch.python.launching import make_job
from mcjax_launch.python.packing import PackedCall
from mcjax_launch.python.values import RankValues
from mcjax_launch.wire.codec import Message

#: The default of the keyword `processes`.
PROCESSES = 4
# The program of the ranks, as a rank's Python finds it: in the hook's own package.
_PROGRAM = "_mcjax_launch.features.session.hook"
# Keywords of `launch` that are only for programs.
_OF_PROGRAMS = ("module", "no_hook", "wrap", "debugpy")


class CalledRanks:
    """Job whose ranks make calls.

    Args:
        keywords: keywords of `launch`.
        deliver: makes the calls of `on_line` and `on_event`.
        argv: `sys.argv[1:]` of the ranks, in which placeholders are filled in.

    Attributes:
        job: the job, not started yet.
        values: what the latest call has returned.
        number: number of the latest call.

    Raises:
        LaunchError: a keyword has a value that its option rejects.
        TypeError: a keyword is unknown, or only for `launch`.

    """

    def __init__(
        self,
        keywords: Mapping[str, Any],
        deliver: Deliver = call_now,
        argv: Sequence[str] = (),
    ) -> None:
        for keyword in _OF_PROGRAMS:
            if keywords.get(keyword):
                raise TypeError(f"{keyword!r} is for programs; use launch")
        keywords = {"echo": True, "processes": PROCESSES, **keywords, "module": True}
        self.values = RankValues()
        self._channel = CallChannel()
        self.number = 0
        try:
            self.job = make_job(_PROGRAM, argv, keywords, deliver, self._channel, self.values)
        except BaseException:
            self._channel.close()
            raise

    def submit(
        self, call: PackedCall, ranks: Sequence[int] | None = None, *, is_last: bool = False
    ) -> None:
        """Let ranks make a call; None for all. The call before must be over.

        Raises:
            LaunchError: there is no room for its arguments.

        """
        self.number += 1
        self._channel.submit(call, self.number, ranks, is_last=is_last)

    def send(self, message: Message) -> None:
        """Send the launcher an order or a question on the calls."""
        self._channel.send(message)
