"""Pool of the agents of all hosts: starts them, and reports which host failed, and why."""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from math import inf
from typing import Protocol

from mcjax_launch.job.hosts import Host
from mcjax_launch.machine.known_schedulers import CLIENTS, find_scheduler
from mcjax_launch.machine.loop import Loop
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.transport.mangling import is_text
from mcjax_launch.transport.remote_commands import Transport
from mcjax_launch.wire import exit_status, frames
from mcjax_launch.wire.codec import Message
from mcjax_launch.wire.exit_status import ENDING, get_signal_name
from mcjax_launch.wire.frames import Data, Raw
from mcjax_launch.wire.messages import Bye, Greeting, Loading, NothingLeft, Ping
from mcjax_launch.wire.value import Value

# Seconds for the client of a lost agent to end: its exit status explains the loss.
_CLIENT_END_S = 1.0
# Seconds that an agent needs besides the time for its ranks' ends.
_STOP_S = 10.0
# Seconds for an agent to end before its greeting; its client may not have reached a host.
_LEAVES_S = 1.5
# What ssh prints if sshd refuses a connection before the login, as when it sets up too many.
_REFUSED = re.compile(
    "kex_exchange_identification|ssh_exchange_identification|banner exchange", re.IGNORECASE
)
# The same, unless another line says more: sshd also closes a connection after the login.
_CLOSED = re.compile("Connection (reset|closed) by ")
# Lines of clients that explain nothing.
_EMPTY = re.compile(r"[@*\W]*|Warning: Permanently added .*")
# Characters of a client's lines to print; of more only the line that explains the failure.
_LONGEST = 600
_KILLED = rb"(?m)^Killed by signal (\d{1,3})\."
# Parts of ssh's messages, and the hint for each.
_HINTS = (
    ("is it installed?", ""),  # the client
    ("zlib.error", frames.UNCHANGED),  # the agent's sources have not come as they were sent
    ("could not resolve", "check its name in the hosts file"),
    ("identification has changed", "if that is expected: ssh-keygen -R {host}"),
    (
        "host key verification failed",
        "accept its key once, ssh {host}, or any new one: StrictHostKeyChecking=accept-new",
    ),
    ("permission denied (", "it needs a key that works without a prompt: ssh-copy-id {host}"),
    ("connection refused", "is sshd running there, on that port?"),
    ("timed out", "is it up, and does a firewall let port 22 through?"),
    ("no route to host", "is it up, and on this network?"),
)
_NO_PYTHON = "Python not found there: set python= in the hosts file, or --python"


class Failure(Value):
    """Failure to start a host's agent."""

    host: Host
    reason: str
    traceback: str = ""  # of a bug in the agent
    stopped: bool = False  # a signal of the user's or a scheduler's ended it


class Killed(Value):
    """Signal that has ended an agent or its client.

    Args:
        what: words for the ended process: "its agent", or such as "its ssh client".
        signum: number of the signal.

    """

    what: str
    signum: int

    def __str__(self) -> str:
        verb = "stopped" if self.signum in ENDING else "killed"
        return f"{self.what} was {verb} by {get_signal_name(self.signum)}"


def find_ending_signal(link: AgentConnection) -> Killed | None:
    """Return the signal that ended a transport's client or agent; None if no signal did."""
    client = f"its {link.client} client" if link.client else "its agent"
    said = re.search(_KILLED, link.errors)  # ssh handles some signals and prints this
    if said is not None and link.status == 255:
        return Killed(client, int(said[1]))
    if link.get_last_lines()[-1:] == ["KeyboardInterrupt"]:  # before Python could begin
        return Killed("its agent", signal.SIGINT)
    status = link.status or 0
    signum, what = (-status, client) if status < 0 else (status - 128, "its agent")
    return Killed(what, signum) if signum in signal.valid_signals() else None


def explain_loss(link: AgentConnection) -> str:
    """Return a message on the reason for which an agent ended after its greeting."""
    lines = link.get_last_lines()
    if (by := find_ending_signal(link)) is not None:
        return str(by)
    return "its agent exited unexpectedly" + (f": {_join_lines(lines, lines[-1])}" if lines else "")


def explain_missing_greeting(link: AgentConnection) -> str:
    """Return the reason for a missing greeting, in words, with advice in parentheses if known."""
    lines = link.get_last_lines()
    from mcjax_launch.transport import bootstrap

    if link.status == bootstrap.TOO_OLD:
        oldest = ".".join(map(str, bootstrap.OLDEST_PYTHON))
        version = lines[0].split()[0] if lines else "?"
        old = f"Python {version} is too old, {oldest} or newer is needed"
        return f"{old}: set python= in the hosts file, or --python"
    if (unfit := next((line for line in lines if line.startswith(frames.UNFIT)), None)) is not None:
        return unfit[len(frames.UNFIT) :]
    said, hint = _find_explanation(lines, link)
    if not hint and (by := find_ending_signal(link)) is not None:
        return str(by)
    status = f"exit status {link.status}" if link.status is not None else "no answer"
    said = said or f"its agent did not start (no output, {status})"
    advice = _choose_advice(link, hint)
    return f"{said} ({advice})" if advice else said


def _find_explanation(lines: Sequence[str], link: AgentConnection) -> tuple[str, str]:
    """Return the lines of a client or shell that explain the failure, and a hint; "" if none."""
    if not lines:
        return "", ""
    for mark, hint in _HINTS:
        if line := next((line for line in reversed(lines) if mark in line.lower()), ""):
            return _join_lines(lines, line), hint.format(host=link.host.login)
    if not link.errors.strip() and not is_text(lines[-1]):
        return "its answer is not text", frames.UNCHANGED
    return _join_lines(lines, lines[-1]), _NO_PYTHON if _lacks_python(lines, link) else ""


def _lacks_python(lines: Sequence[str], link: AgentConnection) -> bool:
    """Return whether the host's shell has not found Python; a missing library is another fault."""
    of_python = (line.lower() for line in lines if "python" in line.lower())
    missing = (line for line in of_python if "not found" in line or "no such file" in line)
    return link.status == exit_status.NOT_FOUND and any("shared" not in line for line in missing)


def _join_lines(lines: Sequence[str], main: str) -> str:
    """Return all lines of a client in one line; only `main` of a traceback or a long text."""
    text = "; ".join(dict.fromkeys(line for line in lines if not _EMPTY.fullmatch(line)))
    text = text.replace(":; ", ": ")
    is_traceback = any(line.startswith("Traceback (") for line in lines)
    return main if is_traceback or len(text) > _LONGEST else text


def _is_refused(link: AgentConnection) -> bool:
    """Return whether sshd has refused the connection for a moment, so that a retry may succeed."""
    lines = [line for line in link.get_last_lines() if not _EMPTY.fullmatch(line)]
    if link.status != 255 or any("timed out" in line for line in lines):
        return False
    alone = bool(lines) and all(map(_CLOSED.match, lines))
    return alone or any(map(_REFUSED.search, lines))


def _choose_advice(link: AgentConnection, hint: str) -> str:
    """Return the hint, or in a scheduler's allocation advice on a better way to start agents."""
    scheduler = find_scheduler(os.environ)
    if hint or scheduler is None or CLIENTS.get(link.client) is not scheduler:
        return hint
    from mcjax_launch.job import allocation

    return allocation.advise_outside(scheduler, os.environ)


def _make_failure(link: AgentConnection) -> Failure:
    """Return the failure of a host whose transport ended before a greeting."""
    by = find_ending_signal(link)
    if by is not None and by.signum in ENDING:
        return Failure(link.host, str(by), stopped=True)
    return Failure(link.host, explain_missing_greeting(link), link.traceback)


# Of a host that says nothing: its login has not come to the command.
_NO_ANSWER = (
    ": does a start-up file there read input, or start another shell (exec fish)? `ssh {host} true "
    "< /dev/null` has to end; start the other shell only if the login is interactive"
)


class LinkState(Enum):
    """State of the connection to an agent."""

    GREETING = auto()  # the agent has not greeted yet
    LEAVING = auto()  # the agent is to end without a greeting
    SERVING = auto()
    EMPTY = auto()  # nothing is left of the agent's ranks
    MISSED = auto()  # the agent is gone without a Bye, and its client may still say why
    GONE = auto()


class PoolListener(Protocol):
    """Receiver of what happens on the connections of a pool."""

    def on_frame(self, link: AgentConnection, frame: Message | Data | Raw) -> None:
        """Handle a frame of an agent that the pool does not handle alone."""

    def on_agent_loss(self, link: AgentConnection, why: str) -> None:
        """Handle the loss of an agent after its greeting, for a reason in words."""

    def on_host_failure(self, failure: Failure) -> None:
        """Handle that no agent could be started on a host."""


class AgentPool:
    """Pool of the agents of all hosts; starts their transports, a bounded number at a time.

    Args:
        hosts: hosts to reach.
        transport: starter of the agents.
        loop: event loop that watches the connections.
        window: limit on ranks' output that an agent sends ahead, in bytes.
        listener: receiver of frames, losses and failures.
        trace: called with a line of text for each frame; None to trace nothing.

    Attributes:
        links: connections to all started agents, except failed attempts.

    """

    def __init__(
        self,
        hosts: Sequence[Host],
        transport: Transport,
        loop: Loop,
        window: int,
        listener: PoolListener,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.links: list[AgentConnection] = []
        self._loop = loop
        self._listener = listener
        self._pace = Pace(hosts)
        self._states: dict[AgentConnection, LinkState] = {}
        self._limits: dict[AgentConnection, float] = {}  # until when each may stay in that state
        self._counts: Counter[LinkState] = Counter()  # of links in each state
        # No agent is given up before this time. It may be too early: most deadlines move later with
        # each message, so `expire` looks at all of them only then.
        self._next_check = math.inf
        self._ping_at = 0.0
        self._given_up: list[AgentConnection] = []  # never greeted

        def connect(host: Host) -> AgentConnection:
            pipes = transport.start(host)
            return AgentConnection(
                host, pipes, loop, window, self._handle_frame, self._handle_end, trace
            )

        self._connect = connect
        self._transport = transport

    def send_all(self, message: Message) -> None:
        """Send a message to every agent."""
        for link in self.links:
            link.send(message)

    def _enter(self, link: AgentConnection, state: LinkState, limit: float = math.inf) -> None:
        """Set the state of a connection, and the time (time.monotonic) at which it is given up."""
        if (before := self._states.get(link)) is not None:
            self._counts[before] -= 1
        self._counts[state] += 1
        self._states[link], self._limits[link] = state, limit
        self._check_in_time(link)

    def _check_in_time(self, link: AgentConnection) -> None:
        """Record that the time at which a connection is given up may have moved earlier."""
        self._next_check = min(self._next_check, self._compute_due_at(link))

    def _select_by_state(self, state: LinkState) -> list[AgentConnection]:
        """Return the connections that are in a state."""
        if not self._counts[state]:
            return []
        return [link for link, its in self._states.items() if its is state]

    # --- start ---

    def begin(self) -> None:
        """Start waiting agents, up to the limit on concurrent starts."""
        now = time.monotonic()
        while (host := self._pace.pop_host(self._counts[LinkState.GREETING], now)) is not None:
            self._start(host)

    def _start(self, host: Host) -> None:
        link = self._connect(host)
        limit = link.began_at + self._transport.get_greeting_limit_s(host)
        self._enter(link, LinkState.GREETING, limit)
        if not host.is_local and not self._transport.hosts_keep_code:
            self._send_code(link)
        self.links.append(link)

    def _send_code(self, link: AgentConnection) -> None:
        from mcjax_launch.transport import bootstrap  # as only other hosts need

        link.send_raw(bootstrap.build_payload(self._transport.features))

    def stop(self, limit_s: float) -> None:
        """Start no more agents, and end agents that have not greeted, because they have no ranks.

        Args:
            limit_s: seconds for the other agents to end their ranks; slower agents are given up.

        """
        due = time.monotonic() + limit_s + _STOP_S
        for link in self.links:
            state = self._states[link]
            if state is not LinkState.GREETING and not link.ended:
                link.wake()
                self._enter(link, state, min(due, self._limits[link]))
        self._pace.stop()
        for link in self._select_by_state(LinkState.GREETING):
            if link.host.is_local:
                self._enter(link, LinkState.GONE)
                link.close()
            else:  # an agent that has just started cleans up, and then its client ends
                link.end_input()
                self._enter(link, LinkState.LEAVING, time.monotonic() + _LEAVES_S)

    @property
    def is_settled(self) -> bool:
        """True if no agent is still to start or to greet."""
        return self._pace.over and not self._counts[LinkState.GREETING]

    @property
    def over(self) -> bool:
        """True if no agent is connected, and none may still connect."""
        ended = all(link.is_over for link in self.links)
        return ended and self.is_settled and not self._counts[LinkState.MISSED]

    @property
    def nothing_left(self) -> bool:
        """True if each agent has reported that no process of the job is left, or has ended."""
        return all(link.ended or self._states[link] is LinkState.EMPTY for link in self.links)

    def _handle_frame(self, link: AgentConnection, frame: Message | Data | Raw) -> None:
        if self._states[link] is LinkState.LEAVING:
            return
        match frame:
            case Data() | Raw():
                self._listener.on_frame(link, frame)
                return
            case Ping():
                return
            case Loading():
                if not frame.has_code:
                    self._send_code(link)
            case Greeting():
                self._enter(link, LinkState.SERVING)
                self._pace.increase_limit()
                self.begin()
            case NothingLeft():
                self._enter(link, LinkState.EMPTY)
            case Bye():
                link.said_bye = True
                link.end_input()
        self._listener.on_frame(link, frame)
        self._check_in_time(link)

    # --- ends ---

    def _handle_end(self, link: AgentConnection, malformed: str) -> None:
        state = self._states[link]
        if state is LinkState.LEAVING:
            if malformed:
                self._close_early(link)
            return
        if malformed:
            self._on_malformed_frame(link, malformed)
            return
        if state is LinkState.GREETING:
            self._handle_failed_start(link)
            return
        if not link.said_bye:
            self._enter(link, LinkState.MISSED, time.monotonic() + _CLIENT_END_S)
            self._judge_missed(link)

    def _judge_missed(self, link: AgentConnection) -> None:
        if link.reap() or time.monotonic() >= self._limits[link]:
            self._enter(link, LinkState.GONE)
            self._listener.on_agent_loss(link, explain_loss(link))

    def reap(self) -> None:
        """Handle ended transports; call this when a child of the launcher has ended."""
        for link in [link for link in self.links if link.ended and link.reap()]:
            if self._states[link] is LinkState.GREETING:
                self._handle_failed_start(link)
            elif self._states[link] is LinkState.MISSED:
                self._judge_missed(link)

    def _handle_failed_start(self, link: AgentConnection) -> None:
        """Handle the end of a transport without a greeting: retry, or report the failure."""
        if not link.reap():
            return  # its exit status says more; SIGCHLD is about to come
        self._forget(link)
        if not (_is_refused(link) and self._pace.retry_later(link.host, time.monotonic())):
            self._listener.on_host_failure(_make_failure(link))
        self.begin()

    def _forget(self, link: AgentConnection) -> None:
        self._enter(link, LinkState.GONE)
        self.links.remove(link)
        link.close()

    # --- time ---

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) at which to call `expire` next; None if nothing is due."""
        at = min(self._next_check, self._pace.compute_deadline(self._counts[LinkState.GREETING]))
        if any(map(self._gets_pings, self.links)):
            at = min(at, self._ping_at)
        return at if at < math.inf else None

    def _gets_pings(self, link: AgentConnection) -> bool:
        return not link.host.is_local and self._is_heard(link)

    def _compute_due_at(self, link: AgentConnection) -> float:
        """Return the time (time.monotonic) at which an agent is given up; inf for never."""
        state, limit = self._states[link], self._limits[link]
        if state is LinkState.MISSED:
            return limit
        if link.ended:
            return math.inf
        if state in (LinkState.LEAVING, LinkState.GREETING):
            return limit
        if link.said_bye:
            return link.silent_at
        silent_at = link.silent_at if self._is_heard(link) else math.inf
        return min(silent_at, limit)

    def _is_heard(self, link: AgentConnection) -> bool:
        """Return whether a silent agent counts as lost; a local agent only after `be_patient`."""
        settled = link.ended or link.said_bye or not link.greeted
        return not settled and (link.is_awaited or not link.host.is_local)

    def expire(self, now: float) -> None:
        """Give up agents that took too long, start waiting agents, and send heartbeats."""
        if now >= self._pace.compute_deadline(self._counts[LinkState.GREETING]):
            self.begin()
        if now >= self._next_check:
            for link in list(self.links):
                if self._compute_due_at(link) <= now:  # also after an earlier link was given up
                    self._handle_deadline(link, now)
            self._next_check = min(map(self._compute_due_at, self.links), default=math.inf)
        if now >= self._ping_at and (afar := list(filter(self._gets_pings, self.links))):
            self._ping_at = now + frames.PING_S
            for link in afar:
                link.send(Ping())

    def _handle_deadline(self, link: AgentConnection, now: float) -> None:
        state = self._states[link]
        if state is LinkState.MISSED:
            self._judge_missed(link)
        elif state is LinkState.LEAVING:
            self._close_early(link)
        elif state is LinkState.GREETING:
            last = "; ".join(filter(None, _find_explanation(link.get_last_lines()[-1:], link)))
            last = f" ({last})" if last else _NO_ANSWER.format(host=link.host.login)
            limit_s = self._transport.get_greeting_limit_s(link.host)
            self._give_up_start(link, f"no answer within {limit_s:g} s{last}")
        elif link.said_bye:
            link.close()
        elif now >= self._limits[link] or link.host.is_local:
            self._give_up(link, "its agent does not answer")
        else:
            self._give_up(link, f"no heartbeat for {frames.SILENCE_S:g} s")

    def _on_malformed_frame(self, link: AgentConnection, what: str) -> None:
        """Give up an agent that has sent a malformed frame: later frames cannot be trusted."""
        why = f"malformed message from its agent ({what}): {frames.UNCHANGED}"
        if self._states[link] is not LinkState.GREETING:
            self._give_up(link, why)
            return
        self._give_up_start(link, why)
        self.begin()

    def _close_early(self, link: AgentConnection) -> None:
        """Close the connection to an agent that ends before its greeting; end its client."""
        self._enter(link, LinkState.GONE)
        link.close()
        link.kill(signal.SIGTERM)

    def _give_up_start(self, link: AgentConnection, why: str) -> None:
        self._forget(link)
        link.kill(signal.SIGTERM)  # `hang_up` waits for it, or kills it
        self._given_up.append(link)
        self._listener.on_host_failure(Failure(link.host, why))

    def _give_up(self, link: AgentConnection, why: str) -> None:
        """Close a lost agent's connection, end the client, and report why the agent is lost."""
        link.close()
        link.kill(signal.SIGTERM)
        self._listener.on_agent_loss(link, why)

    def hang_up(self, limit_s: float) -> None:
        """Close all connections, and wait for the ends of their transports.

        Args:
            limit_s: number of seconds to wait at most.

        """
        for link in self._select_by_state(LinkState.LEAVING):
            self._close_early(link)
        links = [*self.links, *self._given_up]
        for link in links:
            link.close()
            link.wake()
        deadline = time.monotonic() + limit_s
        while not all(link.reap() for link in links) and time.monotonic() < deadline:
            self._loop.dispatch_ready(deadline)  # SIGCHLD wakes it
        for link in links:
            if not link.reap() and not link.host.is_local:
                link.kill(signal.SIGKILL)


# --- order and rate in which transports are started ---

# sshd refuses connections at random when ten are being set up (MaxStartups 10:30:100), and many
# hosts may be one sshd: begin below that, grow while all goes well, halve when one is refused.
_FIRST_LIMIT = 8
_MOST_LIMIT = 64
_MOST_ATTEMPTS = 7


class Pace:
    """Queue of the hosts whose transports are to be started, with a limit on concurrent starts.

    Times are seconds of any steady clock.

    Args:
        hosts: hosts to start, in this order.

    """

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._waiting = deque(hosts)  # to be started as soon as the limit allows
        self._again: list[tuple[float, Host]] = []  # to be tried again, and when
        self._attempts: Counter[Host] = Counter()
        self._limit = _FIRST_LIMIT

    def pop_host(self, under_way: int, now: float) -> Host | None:
        """Return the host to start now; None if none is due or the limit is reached.

        Args:
            under_way: number of hosts that were started and have not greeted yet.
            now: current time.

        """
        if self._again:
            self._waiting += [host for at, host in self._again if at <= now]
            self._again = [(at, host) for at, host in self._again if at > now]
        if not self._waiting or under_way >= self._limit:
            return None
        host = self._waiting.popleft()
        self._attempts[host] += 1
        return host

    def increase_limit(self) -> None:
        """Raise the limit on concurrent starts, because an agent has greeted."""
        self._limit = min(self._limit + 1, _MOST_LIMIT)

    def retry_later(self, host: Host, now: float) -> bool:
        """Lower the limit because a host refused, and queue the host again.

        The pause before the next attempt grows with each attempt. Return False, and change
        nothing, after too many attempts.
        """
        attempts = self._attempts[host]
        if attempts >= _MOST_ATTEMPTS:
            return False
        import random

        self._limit = max(2, self._limit // 2)
        self._again.append((now + 0.1 * 2**attempts * random.uniform(0.5, 1.5), host))
        return True

    def stop(self) -> None:
        """Empty the queue, so that no more hosts are started."""
        self._waiting.clear()
        self._again.clear()

    @property
    def over(self) -> bool:
        """True if no host is left to start."""
        return not self._waiting and not self._again

    def compute_deadline(self, under_way: int) -> float:
        """Return the time to call `pop_host` again; inf if only a greeting allows another start."""
        if not self._again or under_way >= self._limit:
            return inf
        return min(at for at, _ in self._again)
