"""Part of the launcher that leaves standard input to rank 0, whose agent has inherited it."""

import contextlib
import os
import termios
from collections.abc import Iterable, Sequence
from typing import Any

from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.machine.system import find_input_position
from mcjax_launch.wire.messages import ToAgent

_NAME = "stdin"
_CONTROL_CHARACTERS = 6  # in the settings of a terminal


class StandardInput(LauncherPart):
    """Part that reads nothing here while rank 0 reads."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._settings: list[Any] | None = None  # the terminal's, as they were

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Prepare standard input for rank 0, which is about to start; return no orders."""
        if any(rank.process_id == 0 for rank in ranks):
            self._leave_to_rank()
        return ()

    def _leave_to_rank(self) -> None:
        if (position := find_input_position()) is not None:
            # A file: each attempt reads it from the same position.
            begins_at = self.launcher.kept.setdefault(_NAME, position)
            assert isinstance(begins_at, int)
            os.lseek(0, begins_at, os.SEEK_SET)
        elif os.isatty(0):
            self._settings = termios.tcgetattr(0)
            settings = termios.tcgetattr(0)
            # A Ctrl-Z would suspend the launcher, and the rank would read on, beside the shell.
            settings[_CONTROL_CHARACTERS][termios.VSUSP] = b"\0"
            termios.tcsetattr(0, termios.TCSANOW, settings)
        else:  # a pipe, whose writer is to notice when rank 0 reads no more
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.close(null)

    def close(self, now: float) -> None:
        """Restore the terminal's settings, which a rank that was ended may have changed."""
        if self._settings is not None:
            with contextlib.suppress(termios.error):  # the terminal may be closed
                termios.tcsetattr(0, termios.TCSANOW, self._settings)


PART = StandardInput
