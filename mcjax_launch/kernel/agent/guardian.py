"""The process above the agent: it waits, and finishes what a killed agent could not."""

from __future__ import annotations

import os
import signal

from ..wire import exit_status
from ..wire.signals import ENDING
from . import private_folder
from .system import system
from .system.unix import Childless

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from typing import NoReturn

_PATIENCE_S = 5


def guard(agent: int, folder: str) -> NoReturn:
    """Wait for the agent; then end whatever is left below this process and take its exit status.

    Signals that end the agent go to it; it holds them back until it can handle them.
    """
    system.adopt_orphans(folder)
    for signum in ENDING:
        signal.signal(signum, lambda signum, frame: system.signal_process(agent, signum))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored nobody can be waited for
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, signal.SIGALRM))
    status = 1
    signal.signal(signal.SIGALRM, lambda signum, frame: _leave(folder, status))
    # Orphans come to us only when the agent, the nearer subreaper, is gone.
    status = _wait_for(agent)
    signal.alarm(_PATIENCE_S)
    try:
        while True:
            if (ended := system.ended_child()) is not None:
                system.reap(ended.pid)
                continue
            for left in system.descendants():
                system.signal_process(left, signal.SIGKILL)
            system.wait()  # whose orphans there may be next
    except Childless:
        _leave(folder, status)


def _wait_for(agent: int) -> int:
    """The exit status of the agent, which must not stay stopped: it could end nothing."""
    while os.WIFSTOPPED(status := os.waitpid(agent, os.WUNTRACED)[1]):
        system.signal_process(agent, signal.SIGCONT)
    return os.waitstatus_to_exitcode(status)


def _leave(folder: str, status: int) -> NoReturn:
    private_folder.remove(folder)
    os._exit(exit_status.of_wait(status))
