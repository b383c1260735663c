"""The three pipes between the launcher and an agent, or a client that leads to an agent."""

from __future__ import annotations

import os

from mcjax_launch.wire.value import Value


class Pipes(Value):
    """Launcher's ends of the pipes to a started transport (agent or client), and its pid.

    Args:
        pid: pid of the agent or client that was started.
        to_agent, from_agent, errors: descriptors of its stdin, stdout and stderr.
        client: name of the client program; "" for the agent itself.

    """

    pid: int
    to_agent: int
    from_agent: int
    errors: int
    client: str = ""


class NewPipes:
    """Pipes for a process that is about to be started.

    Attributes:
        theirs: descriptors that become the process's 0, 1 and 2.

    Raises:
        OSError: too many files are open.

    """

    def __init__(self) -> None:
        (agent_in, self._to_agent), (self._from_agent, agent_out), (self._errors, agent_err) = (
            os.pipe() for _ in range(3)
        )
        self.theirs = (agent_in, agent_out, agent_err)

    def keep_own_ends(self, pid: int, client: str = "") -> Pipes:
        """Close the ends that the started process has inherited; return the launcher's ends.

        Args:
            pid: pid of the process.
            client: name of the client program; "" for the agent itself.

        """
        self._close(self.theirs)
        ours = (self._to_agent, self._from_agent, self._errors)
        for fd in ours:
            os.set_blocking(fd, False)
        return Pipes(pid, *ours, client)

    def close(self) -> None:
        """Close all pipes, because the process could not be started."""
        self._close((*self.theirs, self._to_agent, self._from_agent, self._errors))

    @staticmethod
    def _close(fds: tuple[int, ...]) -> None:
        for fd in fds:
            os.close(fd)
