"""gdb's own Python: has gdb end as the program did that it has run, where it would say 0.

A rank under `--wrap 'gdb -ex run --args'` thus ends as it would without.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def end_as_the_program(gdb: Any) -> None:
    """Follow the program that gdb runs.

    Args:
        gdb: the module of gdb's Python.

    """
    import atexit

    program = _Program(gdb)
    gdb.events.cont.connect(program.goes_on)
    gdb.events.stop.connect(program.stops)
    gdb.events.exited.connect(program.ends)
    atexit.register(program.end_alike)


class _Program:
    def __init__(self, gdb: Any) -> None:
        self._gdb = gdb
        self._runs = False
        self._status = 0  # its exit status; below 0: minus a signal

    def goes_on(self, _: Any) -> None:
        # Should gdb end now, it would kill the program.
        self._runs, self._status = True, -signal.SIGKILL

    def stops(self, event: Any) -> None:
        """What gdb stops it at may be the signal that it dies of."""
        name = getattr(event, "stop_signal", "")
        if name != "SIGTRAP":
            self._status = -getattr(signal, name, signal.SIGKILL)

    def ends(self, event: Any) -> None:
        died_of = self._gdb.convenience_variable("_exitsignal")
        if hasattr(event, "exit_code"):
            self._status = int(event.exit_code)
        elif died_of is not None:
            self._status = -int(died_of)
        # Else gdb has killed it, and what is known remains.

    def end_alike(self) -> None:
        if self._runs and self._status > 0:
            os._exit(self._status)
        elif self._runs and self._status < 0:
            _die_of(-self._status)


def _die_of(signum: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # gdb's own memory says nothing
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signum])
    os.kill(os.getpid(), signum)
