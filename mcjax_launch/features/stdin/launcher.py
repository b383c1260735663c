"""Reading of the launcher's standard input, and sending it as fast as rank 0 reads."""

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
    InputRank,
)
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.machine.loop import READ
from mcjax_launch.machine.system import Arrivals, reopen
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire.frames import Raw
from mcjax_launch.wire.messages import Credit, ToAgent, ToLauncher

_PIECE = 1 << 16


class _Source:
    """Descriptor that can be read without ever waiting.

    A pipe or terminal is opened once more. Other processes share the original, so it must not
    become non-blocking; and in blocking mode a read would wait if another process had just read the
    data.
    """

    def __init__(self, fd: int) -> None:
        self._is_terminal = os.isatty(fd)
        self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._waits = True
        self._fd = -1
        if self._is_terminal or self._is_pipe:
            with contextlib.suppress(OSError):  # impossible here, or another user's
                self._fd = reopen(fd, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
                self._waits = False
        if self._fd < 0:
            self._fd = os.dup(fd)
        self._arrivals: Arrivals | None = None
        if self._is_terminal:
            # Keys typed for the shell, while the launcher is in the background, stay unread: only
            # their arrival may wake the loop, not their presence.
            with contextlib.suppress(OSError):
                self._arrivals = Arrivals(self._fd)

    @property
    def watched(self) -> int:
        """Descriptor that becomes ready when there may be input to read."""
        return self._fd if self._arrivals is None else self._arrivals.fileno()

    @property
    def wakes(self) -> bool:
        """True if the loop may watch it: in the background, a terminal may stay ready forever."""
        return self._arrivals is not None or not self._is_terminal or not self._is_in_background()

    def read(self, count: int) -> bytes | None:
        """Return the next bytes; b"" at the end; None if there are none now.

        Raises:
            OSError: the input cannot be read.

        """
        if self._arrivals is not None:
            self._arrivals.forget()
        # Asked before the read: the shell may bring the job to the foreground while it fails.
        may_fail = self._is_terminal and self._is_in_background()
        try:
            return os.read(self._fd, count) if not self._waits or self._is_ready() else None
        except BlockingIOError:
            return None
        except OSError:
            if may_fail or (self._is_terminal and self._is_in_background()):
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
        """Close the reading end of a pipe, so that its writer notices."""
        if self._is_pipe:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.close(null)

    def close(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()
        os.close(self._fd)


class StandardInput(LauncherPart):
    """Part that reads the launcher's standard input, while rank 0 has room for it."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._loop = launcher.front.loop
        self._source: _Source | None = None
        self._link: AgentConnection | None = None  # to rank 0's host
        self._ahead = 0  # bytes sent to rank 0's host, and not yet read there

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Return the message for rank 0's host."""
        return [InputRank()] if any(rank.process_id == 0 for rank in ranks) else []

    def on_begin(self, plan: Plan, now: float) -> None:
        """Begin to read, because the ranks have been started."""
        host = next((rank.host for rank in plan.ranks if rank.process_id == 0), None)
        self._link = next((link for link in self.launcher.links if link.host is host), None)
        if self._link is None:  # another launcher has rank 0
            return
        with contextlib.suppress(OSError):  # not a file, so there is only one attempt
            # Each attempt reads the file from the same position.
            begins_at = self.launcher.kept.setdefault(NAME, os.lseek(0, 0, os.SEEK_CUR))
            os.lseek(0, cast("int", begins_at), os.SEEK_SET)
        # Then reading a terminal in the background is an error, and does not stop the launcher.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN])
        self._source = _Source(0)
        self._read()

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Record that rank 0 has read some input, or reads no more; read on."""
        if isinstance(message, InputEnds):
            self._link = None
        elif isinstance(message, Credit):
            self._ahead -= message.count
        self._read()

    def on_signal(self, signum: int) -> None:
        """Read again after SIGCONT, because this process may be in the foreground now."""
        if signum == signal.SIGCONT:
            self._read()

    def close(self, now: float) -> None:
        """Stop reading: the attempt or the input is over, or rank 0 does not read any more."""
        self._link = None
        if self._source is not None:
            self._loop.forget(self._source.watched)
            self._source.close()
            self._source = None

    def _read(self) -> None:
        """Read and send all available input for which rank 0 has room."""
        source, link = self._source, self._link
        if source is None:
            return
        if link is None:
            source.hang_up()
            self.close(time.monotonic())
            return
        while (room := INPUT_WINDOW - self._ahead) > 0:
            try:
                data = source.read(min(room, _PIECE))
            except OSError as error:
                self.launcher.console.say(f"--stdin: cannot read standard input: {error.strerror}")
                data = b""
            if data is None:
                if source.wakes:
                    self._loop.watch(source.watched, READ, lambda ready: self._read())
                else:
                    self._loop.forget(source.watched)
                return
            if not data:
                link.send(InputEnds())
                self.close(time.monotonic())
                return
            self._ahead += len(data)
            link.send_bytes(NAME, 0, data)
        self._loop.forget(source.watched)


PART = StandardInput
