"""Fake clock and fake connection to an agent, for tests that must not wait."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.wire import frames
from mcjax_launch.wire.codec import Message


class Clock:
    """Takes the place of the module `time` in these modules.

    Attributes:
        now: what it shows, until a test sets it anew.

    """

    def __init__(self, patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 100.0
        for module in modules:
            patch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now


class Connection:
    """An agent's connection: notes what is sent, and is told what comes.

    The arguments are those of AgentConnection, as far as a test has any.
    """

    def __init__(self, host: "Host | str" = LOCAL, *arguments: Any) -> None:
        self.host = Host(name=host, slots=1) if isinstance(host, str) else host
        self.greeted = self.ended = self.said_bye = self.rests = False
        self.began_at = self.silent_at = 0.0
        self.status: int | None = None
        self.client = "ssh"
        self.errors = self.noise = b""
        self.traceback = ""
        self.sent: list[Message] = []
        self.raw = b""
        self.patience_s = 0.0
        self.closed = self.input_ended = self.woken = False
        self.killed: list[int] = []
        self._on_frame: Callable[..., None] | None = None
        if arguments:
            _, _, _, self._on_frame, self._on_end, _ = arguments

    @property
    def is_over(self) -> bool:
        return self.ended or self.rests

    # --- what a test lets happen ---

    def says(self, message: Message) -> None:
        """The agent sends a message."""
        self.greeted = True
        assert self._on_frame is not None
        self._on_frame(self, message)

    def ends(self, errors: bytes = b"", status: int | None = None) -> None:
        """The agent's end of the pipe is closed; without a status its process still ends."""
        self.ended, self.errors, self.status = True, errors, status
        self._on_end(self, "")

    def sends_nonsense(self, what: str) -> None:
        """The agent sends what no agent sends."""
        self._on_end(self, what)

    # --- what AgentConnection does ---

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_raw(self, data: bytes) -> None:
        assert data and not self.sent
        self.raw += data

    def supply(self, pieces: Iterator[bytes], then: Message) -> None:
        decoder = frames.Decoder()
        for piece in pieces:
            assert self.is_awaited
            self.patience_s = 0.0  # the agent takes that long for each
            self.sent += decoder.feed(piece)  # type: ignore[arg-type]
        self.sent.append(then)

    def be_patient(self, seconds: float) -> None:
        self.patience_s = seconds

    @property
    def is_awaited(self) -> bool:
        return self.patience_s > 0

    def get_last_lines(self) -> list[str]:
        return (self.errors or self.noise).decode().splitlines()

    def mark_resting(self) -> None:
        self.rests = True

    def hand_over(self) -> str:
        return f"the pipes of {self.host.name}"

    def end_input(self) -> None:
        self.input_ended = True

    def close(self) -> None:
        self.closed = self.ended = True

    def kill(self, signum: int) -> None:
        self.killed.append(signum)

    def wake(self) -> None:
        self.woken = True

    def reap(self) -> bool:
        return self.status is not None
