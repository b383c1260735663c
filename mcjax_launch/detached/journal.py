"""Events of a detached job in files, with all that a terminal needs to show the job again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from mcjax_launch.detached.event_files import EventFiles
from mcjax_launch.events.stream import EventStream, format_event
from mcjax_launch.kernel.wire.codec import Message, to_json

if TYPE_CHECKING:
    from mcjax_launch.events.opening import EventsTarget

#: The kind of the events that are for screens alone.
SCREEN = "screen"
# What the events `output` have told already.
_OUTPUT = ("stdout", "stderr")


class Journal(EventStream):
    """Event stream of a job, to the files in its folder and to the user's own reader.

    Args:
        files: event files of the job.
        on_started: called once, when all ranks run.
        on_ended: called with the exit status and a line that says how the job ended.
        target: target for the user's reader, which gets no screen events; None if there is none.

    Attributes:
        has_started: True once all ranks have run.

    """

    def __init__(
        self,
        files: EventFiles,
        on_started: Callable[[], object],
        on_ended: Callable[[int, str], object],
        target: EventsTarget | None = None,
    ) -> None:
        super().__init__(target)
        self._files = files
        self._on_started, self._on_ended = on_started, on_ended
        self._ranks: set[int] = set()
        self._running: set[int] = set()
        self.has_started = False
        self._first = b""

    def report(self, kind: str, **fields: object) -> None:
        line = format_event(kind, fields)
        kept = format_event(kind, _without_output(fields)) if kind == "summary" else line
        self._files.write((kept,))
        if kind == "job":
            self._files.head = self._first = line
        if not self._target.gone:
            self._send(kind, line)

    def report_screen_call(self, call: str, *values: object) -> None:
        line = format_event(SCREEN, {"call": call, "values": list(map(_convert_to_plain, values))})
        self._files.write((line,))
        if call == "add_ranks":
            self._files.head = self._first + line
            ranks = values[0]
            assert isinstance(ranks, list)
            self._ranks = {rank for rank, _ in ranks}

    def report_rank_start(self, rank: int, host: str, pid: int) -> None:
        super().report_rank_start(rank, host, pid)
        self._running.add(rank)
        if not self.has_started and self._running >= self._ranks:
            self.has_started = True
            self._on_started()

    def report_summary(self, fields: Mapping[str, object]) -> None:
        super().report_summary(fields)
        status = fields.get("exit_status")
        self._on_ended(status if isinstance(status, int) else 1, str(fields.get("message")))


def _without_output(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return a summary's fields without the ranks' output, which may be long."""
    ranks = fields.get("ranks")
    if not isinstance(ranks, list):
        return fields
    short = [{name: rank[name] for name in rank if name not in _OUTPUT} for rank in ranks]
    return {**fields, "ranks": short}


def _convert_to_plain(value: object) -> object:
    """Return a value in a form that JSON can hold: a name for an enum, text for a message."""
    if isinstance(value, Enum):
        return value.name
    return to_json(value) if isinstance(value, Message) else value
