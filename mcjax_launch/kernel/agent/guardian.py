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
    # Orphans come to us only when the agent, the nearer subreaper, is gone.
    status = _wait_for(agent)
    signal.signal(signal.SIGALRM, lambda signum, frame: _leave(folder, status))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    # Again and again: one that comes just before a wait is acted on only after that.
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S, 1)
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
    """The exit status of the agent, which must not stay stopped: it could end nothing.

    Signals stay blocked, and are waited for as the agent's end is: a handler of Python's would not
    be called before the end of a wait that begins just as its signal comes.
    """
    awaited = (*ENDING, signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)  # what is ignored never comes
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    while True:
        pid, status = os.waitpid(agent, os.WUNTRACED | os.WNOHANG)
        if pid and not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if pid:
            system.signal_process(agent, signal.SIGCONT)
        elif (signum := signal.sigwait(awaited)) in ENDING:
            system.signal_process(agent, signum)


def _leave(folder: str, status: int) -> NoReturn:
    private_folder.remove(folder)
    os._exit(exit_status.of_wait(status))
