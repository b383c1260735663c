"""Run a launcher in a terminal of its own, and type there."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Sequence

from jobs import LAUNCHER, LIMIT_S, Jobs
from screen import Screen

ROWS, COLUMNS = 30, 120
#: pdb's in any rank.
PROMPT = re.compile(r"\(Pdb \d+\) ")


_LONGEST = 4096  # of what is waited for: what was read before is not searched again


class Keyboard:
    """The user's end of a terminal.

    Args:
        fd: of that end.

    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.shown = ""
        self._seen = 0

    def until(self, text: "str | re.Pattern[str]") -> str:
        """Read until `text` has come, behind what earlier calls have waited for; all up to there."""
        deadline = time.monotonic() + LIMIT_S
        wanted = re.compile(re.escape(text)) if isinstance(text, str) else text
        begin = self._seen
        while (found := wanted.search(self.shown, begin)) is None:
            begin = max(self._seen, len(self.shown) - _LONGEST)
            assert self._read(deadline - time.monotonic()), f"no {text!r} in {self.shown[-2000:]}"
        before, self._seen = self.shown[self._seen : found.start()], found.end()
        return before

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def _read(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], max(0, seconds))[0]:
            return False
        self.shown += os.read(self.fd, 65536).decode("utf-8", "replace")
        return True


class Terminal(Keyboard):
    """A terminal in which a launcher runs, as the foreground job of a session.

    Args:
        jobs: whose mark the launcher carries.
        args: of the launcher.
        env: more variables.
        within: what runs the launcher, such as `nsenter`.
        command: what runs instead of it.

    """

    def __init__(
        self,
        jobs: Jobs,
        *args: object,
        env: dict[str, str] | None = None,
        within: Sequence[str] = (),
        command: Sequence[str] = (),
    ) -> None:
        fd, self._theirs = pty.openpty()
        super().__init__(fd)
        self.resize(ROWS, COLUMNS)
        self.settings = termios.tcgetattr(self._theirs)
        words = [*within, *(command or LAUNCHER), *map(str, args)]
        # Lines are counted by rank, but where --collapse is given.
        environment = jobs.environment(
            **{"TERM": "xterm", "MCJAX_COLOR": "never", "MCJAX_COLLAPSE": "never", **(env or {})}
        )
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            os.login_tty(self._theirs)
            os.execvpe(words[0], words, environment)

    def read_screen(self) -> list[str]:
        """Return the rows that are to be seen, without empty ones."""
        screen = Screen(COLUMNS, ROWS)
        screen.write(self.shown.replace("\r\n", "\n"))
        return [row for row in screen.rows if row]

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def answer(self, prompt: "str | re.Pattern[str]", text: str) -> None:
        """Type a line at a prompt."""
        self.until(prompt)
        self.type(f"{text}\r")

    def step_past_breakpoint(self) -> None:
        """Go on to the line below breakpoint(), where Python stops by itself until 3.12."""
        if sys.version_info >= (3, 13):
            self.answer(PROMPT, "n")

    @property
    def is_as_it_was(self) -> bool:
        """Whether its settings are those that it had at first."""
        return termios.tcgetattr(self._theirs) == self.settings

    def finish(self) -> int:
        """Wait for the launcher's end; its exit status."""
        pidfd = os.pidfd_open(self.pid)
        deadline = time.monotonic() + LIMIT_S
        while pidfd not in (ready := select.select([self.fd, pidfd], [], [], LIMIT_S)[0]):
            assert ready and time.monotonic() < deadline, self.shown[-2000:]
            self._read(0)
        os.close(pidfd)
        while self._read(0):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def hang_up(self) -> None:
        """Close the terminal, as its window is closed."""
        os.close(self.fd)
        self.fd = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._theirs)
