"""Agents between two runs, still connected, with their imported modules and compiled programs."""

from __future__ import annotations

from mcjax_launch.job.hosts import Host
from mcjax_launch.transport.pipes import Pipes
from mcjax_launch.transport.pool import AgentPool

_AGENT_END_S = 10.0


class RestingAgents:
    """Set of the agents that wait for another run."""

    def __init__(self) -> None:
        self._pool: AgentPool | None = None

    def keep(self, pool: AgentPool) -> None:
        """Keep the agents of an ended run; dismiss kept agents that this run did not use."""
        self.dismiss()
        self._pool = pool

    def hand_over(self, host: Host) -> Pipes | None:
        """Remove the agent of a host and return its pipes; None if there is none."""
        return None if self._pool is None else self._pool.hand_over(host)

    def dismiss(self) -> None:
        """Close all connections, and wait some seconds for the transports to end."""
        if self._pool is not None:
            self._pool.hang_up(_AGENT_END_S)
        self._pool = None

    def reap(self) -> None:
        """Reap transports that have ended; call this when a child of the launcher has ended."""
        if self._pool is not None:
            self._pool.reap()

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) of the next heartbeat or of giving up a silent agent; or None."""
        return self._pool.deadline if self._pool is not None else None

    def expire(self, now: float) -> None:
        """Send heartbeats and give up silent agents, as due at `now`."""
        if self._pool is not None:
            self._pool.expire(now)
