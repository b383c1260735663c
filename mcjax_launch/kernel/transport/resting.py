"""Agents between two runs: they stay connected, and keep what they have imported and compiled."""

from __future__ import annotations

from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.transport.pipes import Pipes
from mcjax_launch.kernel.transport.pool import AgentPool

_AGENT_END_S = 10.0


class RestingAgents:
    """Agents that wait for another run.

    Attributes:
        deadline: when to call `expire`.

    """

    def __init__(self) -> None:
        self._pool: AgentPool | None = None

    def keep(self, pool: AgentPool) -> None:
        """Keep the agents of a run that is over; hang up on agents that the run did not use."""
        self.dismiss()
        self._pool = pool

    def hand_over(self, host: Host) -> Pipes | None:
        """Return the pipes of a host's agent and forget it; None if it has none."""
        return None if self._pool is None else self._pool.hand_over(host)

    def dismiss(self) -> None:
        """Close all connections, and wait for the agents' ends."""
        if self._pool is not None:
            self._pool.hang_up(_AGENT_END_S)
        self._pool = None

    def reap(self) -> None:
        """Reap transports that have ended; call this when a child of the launcher has ended."""
        if self._pool is not None:
            self._pool.reap()

    @property
    def deadline(self) -> float | None:
        """Time at which a heartbeat is due, or silence has lasted too long."""
        return self._pool.deadline if self._pool is not None else None

    def expire(self, now: float) -> None:
        """Act, if the deadline has come."""
        if self._pool is not None:
            self._pool.expire(now)
