"""The three pipes between the launcher and an agent, or the client that leads to one."""

from __future__ import annotations

import os

from mcjax_launch.kernel.wire.value import Value


class Pipes(Value):
    """A started agent: this end of its three pipes, and the process to wait for.

    Args:
        client: the name of the program that was started, where it only leads to the agent.
        rests: the agent has served a run, and waits for another.

    """

    pid: int
    to_agent: int
    from_agent: int
    errors: int
    client: str = ""
    rests: bool = False


class NewPipes:
    """Pipes that a process is about to get.

    Attributes:
        theirs: what becomes its descriptors 0, 1 and 2.

    Raises:
        OSError: too many files are open.

    """

    def __init__(self) -> None:
        (agent_in, self._to_agent), (self._from_agent, agent_out), (self._errors, agent_err) = (
            os.pipe() for _ in range(3)
        )
        self.theirs = (agent_in, agent_out, agent_err)

    def given_to(self, pid: int, client: str = "") -> Pipes:
        """Our ends, once the process has its own; see Pipes."""
        self._close(self.theirs)
        ours = (self._to_agent, self._from_agent, self._errors)
        for fd in ours:
            os.set_blocking(fd, False)
        return Pipes(pid, *ours, client)

    def close(self) -> None:
        """There is no such process."""
        self._close((*self.theirs, self._to_agent, self._from_agent, self._errors))

    @staticmethod
    def _close(fds: tuple[int, ...]) -> None:
        for fd in fds:
            os.close(fd)
