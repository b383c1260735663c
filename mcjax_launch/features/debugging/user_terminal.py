"""User's terminal, lent to a debugger in a rank, which gets each key as it is pressed.

Its settings are restored however the launcher ends: a process of its own waits for that.
"""

import contextlib
import errno
import os
import re
import signal
import termios
import tty
from collections.abc import Callable

from mcjax_launch.machine.loop import GONE, READ, Loop
from mcjax_launch.machine.uplink import Uplink

_INPUT = 0
_MOST_KEYS = 4096
# Waits for the launcher, and restores the terminal's settings if it has ended without a word. The
# signals may be for a whole process group or session.
_KEEPS = "trap '' INT TERM HUP QUIT TSTP TTOU TTIN USR1 USR2; read word || {{ stty {} <&1; echo; }}"


def is_in_background() -> bool:
    """Return whether the launcher is in the background: using the terminal would stop it."""
    try:
        return os.tcgetpgrp(_INPUT) != os.getpgrp()
    except OSError:  # not the controlling terminal
        return False


class UserTerminal:
    """Terminal at standard input.

    Args:
        loop: event loop that reports keys.
        on_keys: called with what the user types while it is lent.
        on_written: called when all output has been written.

    """

    def __init__(
        self, loop: Loop, on_keys: Callable[[bytes], object], on_written: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._on_keys = on_keys
        name = os.ttyname(_INPUT)  # opened again: other processes share descriptor 0
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK
        self._keys, self._screen = os.open(name, flags), os.open(name, flags)
        self._output = Uplink(self._screen, loop, on_written)
        self._on_written = on_written
        self._row = _Row()
        self._notes: list[bytes] = []  # lines to show at the end of the current row
        self._settings = termios.tcgetattr(self._keys)
        self._keeper: _Keeper | None = None  # while it is lent

    @property
    def size(self) -> tuple[int, int]:
        """Number of rows and of columns; 24 and 80 if unknown."""
        size = os.get_terminal_size(self._screen)
        return size.lines or 24, size.columns or 80

    def lend(self) -> None:
        """Pass keys on to the debugger from now on."""
        if self._keeper is not None:
            return
        self._settings = termios.tcgetattr(self._keys)
        self._keeper = _Keeper(self._keys)
        self.resume()
        self._loop.watch(self._keys, READ, self._read)

    def resume(self) -> None:
        """Set raw mode again while it is lent, because another program may have changed it."""
        while self._keeper is not None:
            try:
                tty.setraw(self._keys, termios.TCSANOW)
                return
            except termios.error as error:
                if error.args[0] != errno.EINTR:  # the shell's SIGCONT interrupts it
                    return

    def suspend(self) -> None:
        """Suspend this process as Ctrl-Z does; lend the terminal again when it is continued."""
        row = self._row.text
        self.reclaim()
        os.kill(0, signal.SIGTSTP)
        self.lend()
        self.write(row)

    def reclaim(self) -> None:
        """End the lending, and restore the settings."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        self._loop.forget(self._keys)
        if self._row.shown:
            self.write(b"\r\n")
        self._row.text = b""  # other output follows from here
        self._show(b"".join(self._notes))
        self._notes = []
        with contextlib.suppress(OSError, termios.error):  # the terminal may be closed
            termios.tcsetattr(self._keys, termios.TCSANOW, self._settings)
        keeper.end()

    def write(self, data: bytes) -> None:
        """Show what a debugger has written, now or as soon as there is room."""
        start = data.find(b"\n") + 1
        if self._notes and start and not self._row.is_full_screen:
            self._row.add(data[:start])
            self._show(data[:start] + b"".join(self._notes))
            self._notes, data = [], data[start:]
        self._row.add(data)
        self._show(data)

    def say(self, lines: bytes) -> None:
        """Show whole lines that are not a debugger's, above the user's current line."""
        note = lines.replace(b"\n", b"\r\n")
        if not note:
            return
        if self._row.fits(self.size[1]):
            self._show(b"\r\x1b[K" + note + self._row.text if self._row.text else note)
        else:
            self._notes.append(note)

    def _show(self, data: bytes) -> None:
        if data:
            self._output.send(data)
        if self._output.empty:
            self._on_written()

    def _read(self, ready: int) -> None:
        try:
            data = os.read(self._keys, _MOST_KEYS)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_keys(data)
        if not data or ready & GONE:  # closed; a SIGHUP follows
            self._loop.forget(self._keys)

    def close(self) -> None:
        """Restore and close the terminal."""
        self.reclaim()
        self._output.drop()
        os.close(self._keys)
        os.close(self._screen)


# Sequences that move the cursor to other rows: such a row cannot be drawn again.
_VERTICAL = re.compile(rb"\x1b\[[0-9;]*[ABEFHJLMSTdfr]|\x1b[78cDM]")
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[@-~]|\x1b[^\[]|[\x00-\x1f]")
_FULL_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")
_LONGEST_ROW = 1024


class _Row:
    """Text of the terminal's row in which the cursor is."""

    def __init__(self) -> None:
        self.text = b""
        self.is_full_screen = False

    def add(self, data: bytes) -> None:
        """Add bytes that were written to the terminal."""
        for mode in _FULL_SCREEN.findall(data):
            self.is_full_screen = mode == b"h"
        _, newline, after = data.rpartition(b"\n")
        self.text = (after if newline else self.text + after)[-_LONGEST_ROW:]

    def fits(self, columns: int) -> bool:
        """Return whether the row can be drawn again, after other lines."""
        if self.is_full_screen or len(self.text) == _LONGEST_ROW or _VERTICAL.search(self.text):
            return False
        return len(self.shown) < columns

    @property
    def shown(self) -> bytes:
        """Visible part of the text."""
        return _SEQUENCE.sub(b"", self.text)


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
