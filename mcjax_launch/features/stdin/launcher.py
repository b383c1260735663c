"""Reads the launcher's standard input, and sends it to ranks as fast as the slowest takes it."""

import contextlib
import os
import select
import signal
import stat
import time
from collections.abc import Iterable, Sequence
from typing import cast

from mcjax_launch.features.stdin.messages import (
    INPUT_WINDOW,
    NAME,
    InputEnds,
    TakenBy,
)
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.kernel.launcher.launcher import Launcher
from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.transport.connection import AgentConnection
from mcjax_launch.kernel.wire.frames import Raw
from mcjax_launch.kernel.wire.loop import READ
from mcjax_launch.kernel.wire.messages import Credit, ToAgent, ToLauncher
from mcjax_launch.kernel.wire.system import Arrivals, opened_again

_PIECE = 1 << 16


class _Source:
    """A descriptor that can be read without ever waiting.

    A pipe and a terminal are opened once more: to make that of others non-blocking would change it
    for them too, and without that a read waits where somebody else has been quicker.

    """

    def __init__(self, fd: int) -> None:
        self._is_terminal = os.isatty(fd)
        self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._waits = True
        self._fd = -1
        if self._is_terminal or self._is_pipe:
            with contextlib.suppress(OSError):  # no such thing here, or it is another user's
                self._fd = opened_again(fd, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
                self._waits = False
        if self._fd < 0:
            self._fd = os.dup(fd)
        self._arrivals: Arrivals | None = None
        if self._is_terminal:
            # What is typed for the shell, while the launcher is in the background, stays there to
            # be read: only its arrival may wake us.
            with contextlib.suppress(OSError):
                self._arrivals = Arrivals(self._fd)

    @property
    def watched(self) -> int:
        """A descriptor that becomes ready when there may be something to read."""
        return self._fd if self._arrivals is None else self._arrivals.fileno()

    @property
    def wakes(self) -> bool:
        """Whether to wait for more to read; what is not for this process would wake it again."""
        return self._arrivals is not None or not self._is_terminal or not self._is_in_background()

    def read(self, count: int) -> bytes | None:
        """The next bytes; none at the end; None if there are none now.

        Raises:
            OSError: it cannot be read.

        """
        if self._arrivals is not None:
            self._arrivals.forget()
        try:
            return os.read(self._fd, count) if not self._waits or self._is_ready() else None
        except BlockingIOError:
            return None
        except OSError:
            if self._is_terminal and self._is_in_background():
                return None
            raise

    def _is_ready(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def _is_in_background(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) != os.getpgrp()
        except OSError:  # hung up
            return False

    def hang_up(self) -> None:
        """Let the writer of a pipe know that nobody reads any more."""
        if self._is_pipe:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.close(null)

    def close(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()
        os.close(self._fd)


class StandardInput(LauncherPart):
    """Reads the launcher's standard input, as long as every rank that takes it has room."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__(launcher)
        self._loop = launcher.front.loop
        self._source: _Source | None = None
        self._ahead: dict[AgentConnection, int] = {}  # bytes on their way to each host

    def orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Which ranks take it."""
        taking = tuple(r.process_id for r in ranks if r.process_id in self.launcher.job.stdin)
        return [TakenBy(taking)] if taking else []

    def begins(self, plan: Plan, now: float) -> None:
        """Ranks have been started: read from now on."""
        taking = {rank.host for rank in plan.ranks if rank.process_id in self.launcher.job.stdin}
        links = [link for link in self.launcher.links if link.host in taking]
        self._ahead = dict.fromkeys(links, 0)
        if not self._ahead:
            return
        with contextlib.suppress(OSError):  # not a file: then there is one attempt only
            # Each attempt reads it anew.
            begins_at = self.launcher.kept.setdefault(NAME, os.lseek(0, 0, os.SEEK_CUR))
            os.lseek(0, cast("int", begins_at), os.SEEK_SET)
        # In the background, reading a terminal is an error then, and stops nobody.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN])
        self._source = _Source(0)
        self._read()

    def received(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """The ranks of a host have taken some of it, or take no more."""
        if isinstance(message, InputEnds):
            self._ahead.pop(link, None)
        elif isinstance(message, Credit) and link in self._ahead:
            self._ahead[link] -= message.count
        self._read()

    def signalled(self, signum: int) -> None:
        """Look again: this process may have come to the foreground."""
        if signum == signal.SIGCONT:
            self._read()

    def close(self, now: float) -> None:
        """Stop reading: the attempt is over, or nobody takes any more."""
        self._ahead.clear()
        if self._source is not None:
            self._loop.forget(self._source.watched)
            self._source.close()
            self._source = None

    def _read(self) -> None:
        """Read and send all that there is, and that there is room for."""
        source = self._source
        if source is None:
            return
        if not self._ahead:
            source.hang_up()
            self.close(time.monotonic())
            return
        while (room := INPUT_WINDOW - max(self._ahead.values())) > 0:
            try:
                data = source.read(min(room, _PIECE))
            except OSError as error:
                self.launcher.say(f"--stdin: cannot read standard input: {error.strerror}")
                data = b""
            if data is None:
                if source.wakes:
                    self._loop.watch(source.watched, READ, lambda ready: self._read())
                else:
                    self._loop.forget(source.watched)
                return
            self._send(data)
            if not data:
                self.close(time.monotonic())
                return
        self._loop.forget(source.watched)

    def _send(self, data: bytes) -> None:
        for link in self._ahead:
            self._ahead[link] += len(data)
            if data:
                link.send_bytes(NAME, 0, data)
            else:
                link.send(InputEnds())


PART = StandardInput
