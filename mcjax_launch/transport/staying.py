"""Agents that stay between two attempts to run a job, for what they have preloaded."""

import os
import select
import signal
import time

from mcjax_launch.job.hosts import Host
from mcjax_launch.transport.pipes import Pipes

_END_S = 10.0


class StayingAgents:
    """Holds their pipes meanwhile. An agent that nobody wants ends when they are closed."""

    def __init__(self) -> None:
        self._pipes: dict[Host, Pipes] = {}

    def keep(self, host: Host, pipes: Pipes) -> None:
        """That of this host stays."""
        self._pipes[host] = pipes

    def take(self, host: Host) -> Pipes | None:
        """That of a host, for another attempt; None if there is none any more."""
        pipes = self._pipes.pop(host, None)
        if pipes is None or not _reaped(pipes.pid, os.WNOHANG):
            return pipes
        for fd in (pipes.to_agent, pipes.from_agent, pipes.errors):
            os.close(fd)
        return None

    def dismiss(self) -> None:
        """Have all end, and wait for that; a client that does not end is killed."""
        for pipes in self._pipes.values():
            os.close(pipes.to_agent)
            os.close(pipes.from_agent)
            _signal(pipes, signal.SIGCONT)  # one that has been stopped notices nothing
        deadline = time.monotonic() + _END_S
        for pipes in self._pipes.values():
            if _ends_by(deadline, pipes):
                _reaped(pipes.pid, 0)
            elif pipes.client:
                _signal(pipes, signal.SIGKILL)
            os.close(pipes.errors)
        self._pipes.clear()


def _ends_by(deadline: float, pipes: Pipes) -> bool:
    """Wait until the last process that could complain is gone; whether that was in time."""
    poll = select.poll()
    poll.register(pipes.errors)
    while (left_s := deadline - time.monotonic()) > 0:
        poll.poll(left_s * 1000)
        try:
            if not os.read(pipes.errors, 65536):
                return True
        except BlockingIOError:
            pass
    return False


def _reaped(pid: int, how: int) -> bool:
    """Whether a child has ended, of which nothing is left now."""
    try:
        return os.waitpid(pid, how)[0] == pid
    except ChildProcessError:  # somebody else in this process waits for all its children
        return True


def _signal(pipes: Pipes, signum: int) -> None:
    try:
        os.killpg(pipes.pid, signum)
    except (ProcessLookupError, PermissionError):  # sudo's: its agent ends with the connection
        pass
