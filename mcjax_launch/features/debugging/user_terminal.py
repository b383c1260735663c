"""User's terminal, lent to a debugger in a rank, which opens it by its name.

Its settings are restored however the launcher ends: a process of its own waits for that.
"""

import contextlib
import os
import termios
from collections.abc import Callable

from mcjax_launch.machine.loop import Loop
from mcjax_launch.machine.uplink import Uplink

_INPUT = 0
# Waits for the launcher, and restores the terminal's settings if it has ended without a word. The
# signals may be for a whole process group or session.
_KEEPS = "trap '' INT TERM HUP QUIT TSTP TTOU TTIN USR1 USR2; read word || {{ stty {} <&1; echo; }}"


class UserTerminal:
    """Terminal at standard input.

    Args:
        loop: event loop that reports room on the screen.

    Attributes:
        path: its path.

    """

    def __init__(self, loop: Loop) -> None:
        self.path = os.ttyname(_INPUT)
        # Opened again: other processes share descriptor 0.
        self._screen = os.open(self.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._output = Uplink(self._screen, loop, self._on_written)
        self._when_written: Callable[[], object] | None = None
        self._settings = termios.tcgetattr(self._screen)
        self._keeper: _Keeper | None = None  # while it is lent

    @property
    def is_lent(self) -> bool:
        """True while a debugger has the terminal."""
        return self._keeper is not None

    def lend(self) -> None:
        """Keep the settings, because a debugger may change them from now on."""
        if self._keeper is not None:
            return
        self._settings = termios.tcgetattr(self._screen)
        self._keeper = _Keeper(self._screen)
        # A Ctrl-Z would suspend the launcher, and the rank would read on, beside the shell.
        settings = termios.tcgetattr(self._screen)
        settings[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._screen, termios.TCSANOW, settings)

    def reclaim(self) -> None:
        """End the lending, and restore the settings."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._restore()
            keeper.end()

    def _restore(self) -> None:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be closed
            termios.tcsetattr(self._screen, termios.TCSANOW, self._settings)

    def write(self, text: bytes) -> None:
        """Show whole lines beside what a debugger shows, now or as soon as there is room."""
        if text:
            self._output.send(text)

    def call_when_written(self, call: Callable[[], object]) -> None:
        """Call a function once all lines are on the screen, which may be slow."""
        self._when_written = call
        if self._output.empty:
            self._on_written()

    def _on_written(self) -> None:
        call, self._when_written = self._when_written, None
        if call is not None:
            call()

    def close(self) -> None:
        """Restore and close the terminal: no rank is left that could change its settings."""
        self.reclaim()
        self._restore()
        self._output.drop()
        os.close(self._screen)


class _Keeper:
    """Process that restores a terminal's settings, as they are now, if the launcher is killed."""

    def __init__(self, terminal: int) -> None:
        import subprocess  # few runs have a debugger

        stty = subprocess.run(["stty", "-g"], stdin=terminal, capture_output=True, text=True)
        self._process = subprocess.Popen(
            ["sh", "-c", _KEEPS.format(stty.stdout.strip())],
            stdin=subprocess.PIPE,
            stdout=terminal,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the process, because the settings have been restored."""
        self._process.communicate(b"restored\n")
