"""Brings the agents of all hosts up, and says which host could not be reached, and why."""

import re
import signal
import time
from collections.abc import Callable, Sequence

from mcjax_launch.job.hosts import Host
from mcjax_launch.protocol import frames
from mcjax_launch.protocol.codec import Message
from mcjax_launch.protocol.frames import Content, Data
from mcjax_launch.protocol.loop import Loop
from mcjax_launch.protocol.messages import Bye, Hello, Ping
from mcjax_launch.protocol.value import Value
from mcjax_launch.transport import bootstrap
from mcjax_launch.transport.client import Transport
from mcjax_launch.transport.connection import AgentConnection

#: From the start of a transport to the agent's greeting.
GREETING_S = 14.0
# sshd refuses connections at random when ten are being set up (MaxStartups 10:30:100), and many
# hosts may be one sshd: begin below that, grow while all goes well, halve when one is refused.
_FIRST_LIMIT = 8
_MOST_LIMIT = 64
_MOST_ATTEMPTS = 7
_REFUSED = re.compile(
    rb"kex_exchange_identification|ssh_exchange_identification|banner exchange"
    rb"|Connection (reset|closed) by "
)
# ssh's messages, and the hint for each.
_HINTS = (
    ("could not resolve", "check its name in the hosts file"),
    ("identification has changed", "if that is expected: ssh-keygen -R {host}"),
    ("host key verification failed", "log in once by hand to accept its key: ssh {host}"),
    ("permission denied", "it needs a key that works without a prompt: ssh-copy-id {host}"),
    ("connection refused", "is sshd running there, on that port?"),
    ("timed out", "is it up, and does a firewall let port 22 through?"),
    ("no route to host", "is it up, and on this network?"),
    ("not found", "Python not found there: set python= in the hosts file, or --python"),
    ("no such file", "Python not found there: set python= in the hosts file, or --python"),
)


class Failure(Value):
    """Why a host's agent could not be started."""

    host: Host
    reason: str
    traceback: str = ""  # of a bug in the agent


def why(link: AgentConnection) -> str:
    """Why an agent never greeted: the client's own message, and a hint."""
    lines = link.last_lines()
    text = " ".join(lines).lower()
    if link.status == bootstrap.TOO_OLD:
        oldest = ".".join(map(str, bootstrap.OLDEST_PYTHON))
        version = lines[0].split()[0] if lines else "?"
        old = f"Python {version} is too old, {oldest} or newer is needed"
        return f"{old}: set python= in the hosts file, or --python"
    if (unfit := next((line for line in lines if line.startswith(frames.UNFIT)), None)) is not None:
        return unfit[len(frames.UNFIT) :]
    known = [(mark, hint) for mark, hint in _HINTS if mark in text]
    if not known:
        status = f"exit status {link.status}" if link.status is not None else "no answer"
        return lines[-1] if lines else f"its agent did not start (no output, {status})"
    mark, hint = known[0]
    said = next((line for line in reversed(lines) if mark in line.lower()), lines[-1])
    return f"{said} ({hint.format(host=link.host.login)})"


class AgentPool:
    """Starts a transport for each host, a bounded number at a time.

    Args:
        hosts: to be reached.
        transport: starts them.
        window: see AgentConnection.
        on_frame: called for each frame of an agent.
        on_lost: called when an agent that had greeted is gone without a goodbye.
        on_failure: called when a host's agent could not be started.

    Attributes:
        links: all that have been started, the failed attempts left out.

    """

    def __init__(
        self,
        hosts: Sequence[Host],
        transport: Transport,
        loop: Loop,
        window: int,
        on_frame: Callable[[AgentConnection, Message | Data | Content], None],
        on_lost: Callable[[AgentConnection, str], None],
        on_failure: Callable[[Failure], None],
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.links: list[AgentConnection] = []
        self._transport = transport
        self._loop = loop
        self._window = window
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._trace = trace
        self._waiting: list[tuple[float, Host]] = [(0.0, host) for host in hosts]
        self._attempts: dict[Host, int] = {}
        self._greeting: list[AgentConnection] = []  # started, not greeted yet
        self._limit = _FIRST_LIMIT
        self._ping_at = 0.0
        self._stopped = False

    def send_all(self, message: Message) -> None:
        """Send a message to every agent."""
        for link in self.links:
            link.send(message)

    # --- start ---

    def begin(self) -> None:
        """Start as many as may be set up at once."""
        now = time.monotonic()
        for entry in [entry for entry in self._waiting if entry[0] <= now]:
            if len(self._greeting) >= self._limit:
                return
            self._waiting.remove(entry)
            self._start(entry[1])

    def _start(self, host: Host) -> None:
        self._attempts[host] = self._attempts.get(host, 0) + 1
        pipes = self._transport.start(host)
        link = AgentConnection(
            host, pipes, self._loop, self._window, self._frame, self._ended, self._trace
        )
        if not host.is_local:
            link.send_raw(bootstrap.payload())
        self.links.append(link)
        self._greeting.append(link)

    def stop(self) -> None:
        """Start no more agents, and close those that have not greeted: no ranks run there."""
        self._stopped = True
        self._waiting.clear()
        for link in self._greeting:
            link.close()
            if not link.host.is_local:
                link.kill(signal.SIGTERM)  # an agent that has just started still tidies up
        self._greeting.clear()

    @property
    def settled(self) -> bool:
        """Whether every host has been reached or has failed."""
        return not self._waiting and not self._greeting

    def _frame(self, link: AgentConnection, frame: Message | Data | Content) -> None:
        match frame:
            case Ping():
                return
            case Hello():
                self._greeting.remove(link)
                self._limit = min(self._limit + 1, _MOST_LIMIT)
                self.begin()
            case Bye():
                link.said_bye = True
                link.end_input()
        self._on_frame(link, frame)

    # --- ends ---

    def _ended(self, link: AgentConnection) -> None:
        if link in self._greeting:
            self._judge(link)
        elif not link.said_bye:
            message = link.last_lines()
            self._on_lost(
                link, "its agent exited unexpectedly" + (f": {message[-1]}" if message else "")
            )

    def reap(self) -> None:
        """A child of the launcher has ended."""
        for link in list(self.links):
            if link.reap() and link.ended and link in self._greeting:
                self._judge(link)

    def _judge(self, link: AgentConnection) -> None:
        """A transport ended without a greeting: try again, or give up."""
        if not link.reap():
            return  # its exit status says more; SIGCHLD is about to come
        self._give_up(link)
        refused = link.status == 255 and _REFUSED.search(link.errors)
        if self._stopped:
            return
        if (
            refused
            and b"timed out" not in link.errors
            and self._attempts[link.host] < _MOST_ATTEMPTS
        ):
            import random

            self._limit = max(2, self._limit // 2)
            pause = 0.1 * 2 ** self._attempts[link.host] * random.uniform(0.5, 1.5)
            self._waiting.append((time.monotonic() + pause, link.host))
        else:
            self._on_failure(Failure(link.host, why(link), link.traceback))
        self.begin()

    def _give_up(self, link: AgentConnection) -> None:
        self._greeting.remove(link)
        self.links.remove(link)
        link.close()

    # --- time ---

    @property
    def deadline(self) -> float | None:
        """When to call `expire` next."""
        times = [link.began_at + GREETING_S for link in self._greeting if not link.host.is_local]
        if len(self._greeting) < self._limit:
            times += [at for at, _ in self._waiting]
        times += [link.silent_at for link in self.links if link.said_bye and not link.ended]
        afar = [link for link in self.links if self._is_afar(link)]
        if afar:
            times += [self._ping_at, min(link.silent_at for link in afar)]
        return min(times, default=None)

    def _is_afar(self, link: AgentConnection) -> bool:
        settled = link.ended or link.said_bye
        return link.greeted and not settled and not link.host.is_local

    def expire(self, now: float) -> None:
        """Give up on what took too long."""
        self.begin()
        for link in list(self._greeting):
            if now >= link.began_at + GREETING_S and not link.host.is_local:
                self._give_up(link)
                link.kill()
                said = link.last_lines()
                last = f" ({said[-1]})" if said else ""
                self._on_failure(Failure(link.host, f"no answer within {GREETING_S:g} s{last}"))
        for link in self.links:
            if link.said_bye and not link.ended and now >= link.silent_at:
                link.close()
        afar = [link for link in self.links if self._is_afar(link)]
        for link in afar:
            if now >= link.silent_at:
                link.close()
                link.kill()
                self._on_lost(link, f"no heartbeat for {frames.SILENCE_S:g} s")
        if afar and now >= self._ping_at:
            self._ping_at = now + frames.PING_S
            for link in afar:
                link.send(Ping())

    def hang_up(self, limit_s: float) -> None:
        """Close all connections; wait, but no longer than this, for their transports to end."""
        links = self.links
        for link in links:
            link.close()
        deadline = time.monotonic() + limit_s
        while any(not link.reap() for link in links) and time.monotonic() < deadline:
            self._loop.turn(deadline)  # SIGCHLD wakes it
        for link in links:
            if not link.reap() and not link.host.is_local:
                link.kill()
