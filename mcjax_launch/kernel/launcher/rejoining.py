"""Has the ranks of a lost host started again: there, or on a host with free slots."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.launcher.timers import pause_s
from mcjax_launch.kernel.wire import messages
from mcjax_launch.ranks import counted, these_ranks

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Plan
    from mcjax_launch.kernel.launcher.startup import Startup
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.transport.pool import AgentPool
    from mcjax_launch.kernel.wire.codec import Message
    from mcjax_launch.kernel.wire.frames import Data, Raw

# A lost host is tried so often, where no other has room for its ranks.
_TRIES = 3


class Rejoining:
    """The ranks of a lost host, from its loss until they are started again.

    Args:
        lost: the host, and `ranks` those of its ranks that are to be started.
        spares: hosts with free slots, of all that are lost; one that is tried is taken out.
        startup: prepares a host.
        pool: connects to it.
        say: shows a line.
        begin: called with the plan and the agent when a host is ready.
        give_up: called instead, with the reason, when none is.

    Attributes:
        due: when to connect to a host; None while that is under way.

    """

    def __init__(
        self,
        lost: Host,
        ranks: Collection[int],
        due: float,
        *,
        spares: list[Host],
        startup: Startup,
        pool: AgentPool,
        say: Callable[[str], object],
        begin: Callable[[Rejoining, Plan, AgentConnection], object],
        give_up: Callable[[str], object],
    ) -> None:
        self.lost = self._host = lost
        self.ranks = ranks
        self.due: float | None = due
        self._spares = spares
        self._startup = startup
        self._pool = pool
        self._say = say
        self._begin = begin
        self._give_up = give_up
        self._tries = 0

    def connect(self) -> None:
        """It is time."""
        self.due = None
        self._tries += 1
        self._startup.rejoining[self._host] = self
        try:
            self._pool.connect_again(self._host)
        except LaunchError as error:
            self.failed(str(error))

    def received(self, link: AgentConnection, message: Message | Data | Raw) -> None:
        """The agent of the host has said something."""
        match message:
            case messages.Greeting(version) if version == messages.VERSION:
                self._startup.ask_again(link, self.lost)
            case messages.HostFacts():
                link.be_patient(0)
                try:
                    plan = self._startup.replaced(self.lost, self._host, message)
                except LaunchError as error:
                    self._refused(link, str(error))
                    return
                del self._startup.rejoining[self._host]
                self._begin(self, plan, link)
            case messages.Refused(reason):
                self._refused(link, reason)
            case messages.Greeting():
                self._refused(link, "its agent has another version")

    def _refused(self, link: AgentConnection, why: str) -> None:
        link.send(messages.Stop(int(signal.SIGKILL), 0))
        self.failed(why)

    def failed(self, why: str) -> None:
        """The host cannot be reached, or cannot run the ranks: try again, or elsewhere."""
        name = self._host.name
        del self._startup.rejoining[self._host]
        spare = self._spare()
        if spare is not None:
            self._host, pause, where = spare, 0.0, f"on host {spare.name} instead"
        elif self._tries < _TRIES:
            self._host, pause = self.lost, pause_s(self._tries)
            where = f"on host {self.lost.name} in {pause:g} s"
        else:
            slots = counted(len(self._startup.ranks_of(self.lost)), "free slot")
            none = f"no other host has {slots}"
            if not self._startup.may_move(self.lost):
                none = "its ranks cannot go elsewhere"
            self._give_up(f"host {name}: {why}; {none}")
            return
        self.due = time.monotonic() + pause
        self._say(f"host {name}: {why}; starting {these_ranks(sorted(self.ranks))} {where}")

    def _spare(self) -> Host | None:
        """The next host that has room for the ranks, with so many slots."""
        if not self._startup.may_move(self.lost):
            return None
        wanted = len(self._startup.ranks_of(self.lost))
        spare = next((host for host in self._spares if host.slots >= wanted), None)
        if spare is not None:
            self._spares.remove(spare)
            return spare.replaced(slots=wanted)
        return None
