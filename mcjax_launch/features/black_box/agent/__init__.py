"""Collection of facts about this host's ranks: when they are ended, or on request."""

from __future__ import annotations

import select
import time

from ....kernel.agent.part import AgentPart
from ....kernel.agent.stacks import with_source
from ....kernel.wire.messages import Ping
from ..messages import Collect, Evidence

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....kernel.agent.hook_server import HookConnection
    from ....kernel.agent.part import HostAgent
    from ....kernel.wire.codec import Message
    from ....kernel.wire.frames import Raw

# Seconds for ranks to write their stacks before a signal ends them.
_STACKS_S = 0.5
# Seconds for debuggers, during which ranks are stopped: gdb needs 7 s of a core for a JAX process.
# Over a network fewer, because the agent reads nothing meanwhile and 12 s of silence mean a loss.
_MOST_S, _MOST_FAR_S = 12.0, 8.0
# Seconds to wait for stacks that arrive later.
_REST_S = 0.5


class EvidenceCollector(AgentPart):
    """Part that collects facts; the agent does nothing else meanwhile, so ranks are not ended."""

    is_reusable = True

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._asked: Sequence[HookConnection] = ()  # hooks that were asked for stacks
        self._is_told = False  # the launcher has said how the job ends
        self._sent: set[str] = set()  # names of sent files with content

    def on_message(self, message: Message | Raw) -> None:
        """Collect facts, because the launcher has sent a request."""
        if isinstance(message, Collect) and not self._is_told:
            self._is_told = not message.goes_on
            self._collect(goes_on=message.goes_on)

    def on_stop(self) -> None:
        """Collect nothing more by itself: the launcher sends a request if it wants one."""
        self._is_told = True

    def on_launcher_loss(self) -> None:
        """Collect nothing more, because the launcher is gone."""
        self._is_told = True

    def on_ranks_end(self) -> None:
        """Collect facts if a rank has failed here, before the launcher can ask."""
        if not self._is_told and self.agent.supervisor.stopping and self.agent.pids:
            self._is_told = True
            self._collect(goes_on=False)

    def _collect(self, *, goes_on: bool) -> None:
        from . import observations

        # Stacks of running threads may crash a rank, which matters only if it is to go on.
        self._asked = self.agent.hooks.request_stacks(all_threads=not goes_on)
        _await_answers([hook.fd for hook in self._asked])  # before a debugger stops them
        most_s = _MOST_FAR_S if self.agent.link.is_remote else _MOST_S
        link = self.agent.link
        seen = observations.collect_files(self.agent.pids, most_s, lambda: link.send(Ping()))
        for name, text in seen:
            is_late = text.endswith(observations.NOTHING)
            if not is_late or name not in self._sent:  # the earlier content is better
                link.send(Evidence(name, text))
            if not is_late:
                self._sent.add(name)
        self.deadline = time.monotonic() + _REST_S

    def expire(self, now: float) -> None:
        """Send the stacks that have arrived, if the deadline has passed."""
        if self.deadline is not None and now >= self.deadline:
            self._send_stacks()

    def drain(self) -> bool:
        """Send the stacks that have arrived, because all ranks have ended."""
        self._send_stacks()
        return True

    def _send_stacks(self) -> None:
        asked, self._asked, self.deadline = self._asked, (), None
        parts = [
            f"rank {hook.rank}, pid {hook.pid}:\n" + "\n".join(with_source(hook.stacks))
            for hook in sorted(asked, key=lambda hook: (hook.rank, hook.pid))
            if hook.stacks
        ]
        if parts:
            self.agent.link.send(Evidence("stacks.txt", "\n\n".join(parts) + "\n"))


def _await_answers(files: Sequence[int]) -> None:
    """Wait, up to a limit, until each descriptor has data, which the agent's loop reads later."""
    waiting, until = set(files), time.monotonic() + _STACKS_S
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting and (left := until - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            poll.unregister(fd)
            waiting.discard(fd)


PART = EvidenceCollector
