"""Agents between two runs: they stay connected, with what they have imported and compiled."""

from __future__ import annotations

from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.transport.pipes import Pipes
from mcjax_launch.kernel.transport.pool import AgentPool

_AGENT_END_S = 10.0


class RestingAgents:
    """The agents that wait for another run.

    Attributes:
        deadline: when to call `expire`.

    """

    def __init__(self) -> None:
        self._pool: AgentPool | None = None

    def keep(self, pool: AgentPool) -> None:
        """Keep the agents of a run that is over; hang up on those that it has not used."""
        self.dismiss()
        self._pool = pool

    def take(self, host: Host) -> Pipes | None:
        """Return the pipes of a host's agent; None if it has none."""
        return None if self._pool is None else self._pool.hand_over(host)

    def dismiss(self) -> None:
        """Hang up, and wait for the agents' ends."""
        if self._pool is not None:
            self._pool.hang_up(_AGENT_END_S)
        self._pool = None

    def reap(self) -> None:
        """A child of the launcher has ended."""
        if self._pool is not None:
            self._pool.reap()

    @property
    def deadline(self) -> float | None:
        """When a heartbeat is due, or silence has lasted too long."""
        return self._pool.deadline if self._pool is not None else None

    def expire(self, now: float) -> None:
        """Act, if it is time."""
        if self._pool is not None:
            self._pool.expire(now)
