"""Client: the program that started the launcher through the Python API and reads its events."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import MutableMapping, Sequence

from mcjax_launch.journal.opening import EventsTarget
from mcjax_launch.journal.sink import Sink
from mcjax_launch.journal.stream import EventStream
from mcjax_launch.machine.loop import READ, Loop, SignalPipe
from mcjax_launch.transport.early import CLIENT
from mcjax_launch.wire.frames import Data, encode_message
from mcjax_launch.wire.messages import Started
from mcjax_launch.wire.value import Value


class Client(Value):
    """Descriptors that a client shares with the launcher, and flags for the reports it wants.

    Args:
        life: descriptor that is readable once the client has ended; the job ends then.
        values: descriptor for the frames of return values; None if there are no calls.
        calls: descriptor of the socket from which the program's calls come.
        echoes: True if the client wants the lines that the launcher prints.
        hears_output: True if the client wants the ranks' output as events.
        hosts: the lines of a hosts list that was not given as a file.

    """

    life: int
    values: int | None = None
    calls: int | None = None
    echoes: bool = True
    hears_output: bool = True
    hosts: Sequence[str] = ()


def pop_client(environ: MutableMapping[str, str]) -> Client | None:
    """Remove and parse the variable set by a client; None if the launcher has no client."""
    text = environ.pop(CLIENT, "")
    if not text:
        return None
    client = Client(**json.loads(text))
    for fd in (client.life, client.values, client.calls):
        if fd is not None:
            os.set_inheritable(fd, False)
    return client


class ClientStream(EventStream):
    """Stream of events and of calls' return values to a client, and the calls that it makes.

    Args:
        target: where to write the events.
        client: the client's descriptors and wishes.

    """

    has_client = True

    def __init__(self, target: EventsTarget, client: Client) -> None:
        super().__init__(target)
        self._client = client
        if client.calls is not None:
            from mcjax_launch.journal.calls import CallSource  # few jobs make calls

            self.calls = CallSource(client.calls)

    def begin(self, loop: Loop, signals: SignalPipe) -> None:
        if self._front is None and self._client.values is not None:
            self.values = Sink(self._client.values, loop)
            self.values.watch(lambda error: None)
        super().begin(loop, signals)
        loop.watch(self._client.life, READ, lambda ready: self._end_job(loop, signals))

    def _end_job(self, loop: Loop, signals: SignalPipe) -> None:
        """End the job at once, as two SIGTERMs do, because the client has ended."""
        loop.forget(self._client.life)
        for _ in range(2):
            signals.put(signal.SIGTERM)

    def on_data(self, data: Data, at: float) -> None:
        if self._client.hears_output:
            super().on_data(data, at)

    def on_started(self, started: Started, at: float) -> None:
        super().on_started(started, at)
        # What an earlier process of the rank has returned is void.
        self.values.write((encode_message(started),))

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        """True if all events and values have been written, or the reader has left."""
        return self.is_written and not self.values.queued
