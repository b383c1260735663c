"""Agents brought up a bounded number at a time, tried again, given up, and missed."""

import random
import signal
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
from fakes import Clock, Connection

from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.transport import bootstrap, pool
from mcjax_launch.transport.pool import AgentPool, Failure
from mcjax_launch.transport.remote_commands import Transport
from mcjax_launch.wire.frames import PING_S, SILENCE_S, UNCHANGED
from mcjax_launch.wire.messages import VERSION, Bye, Greeting, Loading, NothingLeft, Ping

JOB = Job(program=("true",), python="python3", chdir="/", start_timeout=900.0)
HELLO, BYE = Greeting(VERSION), Bye((), ())
REFUSED = b"kex_exchange_identification: read: Connection reset by peer\n"


class Agents:
    """A pool whose transport starts nothing, and all that it reports."""

    def __init__(self, patch: pytest.MonkeyPatch, *names: str) -> None:
        self._transport = Transport(JOB, ())
        self.clock = Clock(patch, pool)
        patch.setattr(pool, "AgentConnection", self._connection)
        patch.setattr(random, "uniform", lambda low, high: (low + high) / 2)
        self.made: list[Connection] = []
        self.frames: list[object] = []
        self.lost: list[tuple[str, str]] = []
        self.failed: list[Failure] = []
        self.failures: list[tuple[str, str]] = []
        self.pool = AgentPool(
            [Host(name=name, slots=1) for name in names],
            SimpleNamespace(  # type: ignore[arg-type]
                start=lambda host: None,
                get_greeting_limit_s=self._transport.get_greeting_limit_s,
                features=frozenset(),
                hosts_keep_code=True,
            ),
            SimpleNamespace(dispatch_ready=self._turn),  # type: ignore[arg-type]
            1,
            self,  # type: ignore[arg-type]
        )
        self.pool.begin()

    def _connection(self, *arguments: object) -> Connection:
        link = Connection(*arguments)  # type: ignore[arg-type]
        link.began_at, link.silent_at = self.clock.now, self.clock.now + SILENCE_S
        self.made.append(link)
        return link

    def on_frame(self, link: object, frame: object) -> None:
        self.frames.append(frame)

    def on_agent_loss(self, link: Connection, why: str) -> None:
        self.lost.append((link.host.name, why))

    def on_host_failure(self, failure: Failure) -> None:
        self.failed.append(failure)
        self.failures.append((failure.host.name, failure.reason))

    def _turn(self, deadline: float) -> None:
        self.clock.now = deadline

    @property
    def started(self) -> list[str]:
        """The hosts whose transports have been started, in order."""
        return [link.host.name for link in self.made]

    def after(self, seconds: float) -> None:
        """So much more time goes by."""
        self.clock.now += seconds
        self.pool.expire(self.clock.now)


Make = Callable[..., Agents]


@pytest.fixture
def agents_of(monkeypatch: pytest.MonkeyPatch) -> Make:
    return partial(Agents, monkeypatch)


# --- the agents' code ---


def test_code_is_sent_to_hosts_that_lack_it(agents_of: Make) -> None:
    agents = agents_of("a", "b")
    assert [link.raw for link in agents.made] == [b"", b""]
    agents.made[0].says(Loading(has_code=True))
    agents.made[1].says(Loading(has_code=False))
    assert [link.raw for link in agents.made] == [b"", bootstrap.build_payload(frozenset())]
    assert agents.frames == [Loading(True), Loading(False)]


# --- how many at a time ---


def test_concurrent_starts_grow_from_eight(agents_of: Make) -> None:
    names = [f"n{number}" for number in range(20)]
    agents = agents_of(*names)
    assert agents.started == names[:8]
    agents.made[0].says(HELLO)
    assert agents.started == names[:10]
    agents.made[1].says(HELLO)
    assert agents.started == names[:12]
    assert not agents.pool.is_settled
    for link in agents.made[2:12]:
        link.says(HELLO)
    assert agents.started == names
    for link in agents.made[12:]:
        link.says(HELLO)
    assert agents.pool.is_settled
    assert agents.frames == [HELLO] * 20
    assert [link.host.name for link in agents.pool.links] == names


def test_refusal_halves_the_concurrent_starts(agents_of: Make) -> None:
    names = [f"n{number}" for number in range(20)]
    agents = agents_of(*names)
    for link in agents.made[:4]:
        link.ends(REFUSED, 255)
    assert agents.started == names[:8]  # four greet, and no more than two may
    for link in agents.made[4:6]:
        link.says(HELLO)
    assert agents.started == names[:10]  # two more, of four that may


# --- again, and no more ---


def test_refused_host_is_retried_after_a_pause(agents_of: Make) -> None:
    agents = agents_of("a")
    pauses = []
    for attempt in range(1, 7):
        assert agents.started == ["a"] * attempt
        agents.made[-1].ends(REFUSED, 255)
        assert agents.made[-1].closed and agents.pool.links == []
        assert agents.pool.deadline is not None and not agents.pool.is_settled
        pauses.append(round(agents.pool.deadline - agents.clock.now, 6))
        agents.after(pauses[-1] / 2)
        assert agents.started == ["a"] * attempt
        agents.after(pauses[-1] / 2 + 1e-6)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    assert agents.failures == []
    agents.made[-1].ends(REFUSED, 255)
    assert agents.failures == [("a", REFUSED.decode().strip())]
    agents.after(100)
    assert agents.pool.is_settled and agents.pool.deadline is None


@pytest.mark.parametrize(
    ("errors", "status", "reason"),
    [
        (b"me@a: Permission denied (publickey).\n", 255, "(publickey). (it needs a key that works"),
        (b"Connection to a port 22 timed out\nConnection reset by a\n", 255, "(is it up, and does"),
        (REFUSED, 1, "Connection reset by peer"),
        (
            b"Access denied by pam: no job here\nConnection closed by a\n",
            255,
            "Access denied by pam: no job here; Connection closed by a",
        ),
        (b"sh: 1: exec: python3: not found\n", 127, "(Python not found there"),
        (b"zsh:1: command not found: python3\n", 127, "(Python not found there"),
        (b"3.6.9 (default)\n", bootstrap.TOO_OLD, "Python 3.6.9 is too old"),
        (b"", 3, "did not start (no output, exit status 3)"),
    ],
)
def test_otherwise_failing_host_is_given_up(
    agents_of: Make, errors: bytes, status: int, reason: str
) -> None:
    agents = agents_of("a", "b")
    agents.made[0].ends(errors, status)
    [(host, said)] = agents.failures
    assert host == "a" and reason in said
    assert agents.started == ["a", "b"]
    assert agents.pool.links == agents.made[1:]


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        (
            "ssh: error while loading shared libraries: libcrypto.so.3: No such file or directory",
            127,
        ),
        (
            "python3: error while loading shared libraries: libz.so.1: No such file or directory",
            127,
        ),
        ('Error from server (NotFound): pods "a" not found', 1),
        ("no such identity: /root/.ssh/id: No such file or directory", 255),
    ],
)
def test_hints_are_given_only_for_what_they_are_about(
    agents_of: Make, errors: str, status: int
) -> None:
    agents = agents_of("a")
    agents.made[0].ends(errors.encode(), status)
    assert agents.failures == [("a", errors)]


def test_closed_connection_is_retried_unless_another_line_says_why(agents_of: Make) -> None:
    agents = agents_of("a", "b")
    warned = b"Warning: Permanently added 'a' to the list of known hosts.\nConnection closed by a\n"
    agents.made[0].ends(warned, 255)
    assert agents.failures == []
    agents.made[1].ends(b"Your account has expired\nConnection closed by b\n", 255)
    assert agents.failures == [("b", "Your account has expired; Connection closed by b")]


def test_long_text_of_a_client_is_not_told_whole(agents_of: Make) -> None:
    agents = agents_of("a", "b")
    banner = b"Authorized users only. " * 40
    agents.made[0].ends(banner + b"\nme@a: Permission denied (publickey).\n", 255)
    traceback = b'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: full\n'
    agents.made[1].ends(traceback, 1)
    [(_, denied), (_, full)] = agents.failures
    assert denied.startswith("me@a: Permission denied (publickey). (it needs a key")
    assert full == "OSError: full"


def test_binary_answer_is_not_quoted(agents_of: Make) -> None:
    """A terminal echoes the agent's sources."""
    agents = agents_of("a")
    agents.made[0].noise = "\N{REPLACEMENT CHARACTER}".encode() * 40
    agents.made[0].ends(b"", 1)
    [(_, why)] = agents.failures
    assert why == f"its answer is not text ({UNCHANGED})"


def test_the_exit_status_is_waited_for(agents_of: Make) -> None:
    agents = agents_of("a")
    agents.made[0].ends(REFUSED)
    agents.pool.reap()
    assert not agents.made[0].closed and agents.failures == []
    agents.made[0].status = 1
    agents.pool.reap()
    assert agents.made[0].closed and len(agents.failures) == 1


def test_host_without_a_timely_greeting_is_given_up(agents_of: Make) -> None:
    agents = agents_of(LOCAL, "b", "c")
    agents.made[2].says(HELLO)
    agents.made[2].silent_at += 100
    agents.made[1].errors = b"Welcome\nto the swamp\n"
    agents.after(13.9)
    assert agents.failures == []
    assert agents.pool.deadline == agents.made[1].began_at + 14
    agents.after(0.1)
    assert agents.failures == [("b", "no answer within 14 s (to the swamp)")]
    assert agents.made[1].closed and agents.made[1].killed == [signal.SIGTERM]
    assert not agents.made[0].closed  # no network is between us
    assert agents.lost == []


# --- silence, and ends ---


def test_agents_over_a_network_get_pings(agents_of: Make) -> None:
    agents = agents_of(LOCAL, "b", "c")
    for link in agents.made[:2]:
        link.says(HELLO)
    agents.after(0)
    agents.after(PING_S - 0.1)
    assert [link.sent for link in agents.made] == [[], [Ping()], []]
    assert agents.pool.deadline == pytest.approx(agents.clock.now + 0.1)
    agents.after(0.1)
    assert [link.sent for link in agents.made] == [[], [Ping()] * 2, []]


def test_silence_over_a_network_is_a_loss(agents_of: Make) -> None:
    agents = agents_of(LOCAL, "b", "c")
    for link in agents.made:
        link.says(HELLO)
    agents.made[2].silent_at += 1
    agents.after(SILENCE_S - 0.1)
    assert agents.lost == []
    assert agents.pool.deadline == agents.made[1].silent_at
    agents.after(0.1)
    assert agents.lost == [("b", "no heartbeat for 12 s")]
    assert agents.made[1].closed and agents.made[1].killed == [signal.SIGTERM]
    agents.after(1)
    assert [host for host, _ in agents.lost] == ["b", "c"]
    agents.after(100)
    assert len(agents.lost) == 2 and not agents.made[0].closed


def test_nonsense_from_a_host_ends_its_connection(agents_of: Make) -> None:
    agents = agents_of("a", "b")
    agents.made[0].says(HELLO)
    for link in agents.made[:2]:
        link.sends_nonsense("Exited of rank 7, which is not there")
    [(lost, why)], [(failed, same)] = agents.lost, agents.failures
    assert (lost, failed) == ("a", "b") and why == same
    assert why.startswith("malformed message from its agent (Exited of rank 7, which is not there)")
    assert all(link.closed and link.killed == [signal.SIGTERM] for link in agents.made)
    assert agents.pool.is_settled


def test_an_end_without_a_goodbye_is_a_loss(agents_of: Make) -> None:
    agents = agents_of("a", "b", "c")
    for link in agents.made:
        link.says(HELLO)
    agents.made[0].ends(b"banner\nConnection closed\n", 255)
    agents.made[1].ends(status=1)
    agents.made[2].says(BYE)
    assert agents.made[2].input_ended
    agents.made[2].ends(b"Connection closed\n")
    assert agents.lost == [
        ("a", "its agent exited unexpectedly: banner; Connection closed"),
        ("b", "its agent exited unexpectedly"),
    ]


@pytest.mark.parametrize(
    ("status", "errors", "reason"),
    [
        (-signal.SIGKILL, b"", "its ssh client was killed by SIGKILL"),
        (255, b"Killed by signal 15.\n", "its ssh client was stopped by SIGTERM"),
        (128 + signal.SIGKILL, b"", "its agent was killed by SIGKILL"),
        pytest.param(
            *(-40, b"", "its ssh client was killed by signal 40"),
            marks=pytest.mark.only_linux("real-time signals"),
        ),
        (
            255,
            b"client_loop: send disconnect: Broken pipe\n",
            "its agent exited unexpectedly: client",
        ),
    ],
)
def test_reason_for_the_clients_end_is_reported(
    agents_of: Make, status: int, errors: bytes, reason: str
) -> None:
    agents = agents_of("a")
    agents.made[0].says(HELLO)
    agents.made[0].ends(errors)
    assert agents.lost == [] and not agents.pool.over  # it may end a moment after its pipe
    agents.made[0].status = status
    agents.pool.reap()
    [(host, said)] = agents.lost
    assert host == "a" and said.startswith(reason) and agents.pool.over


def test_client_that_does_not_end_is_not_waited_for(agents_of: Make) -> None:
    agents = agents_of("a")
    agents.made[0].says(HELLO)
    agents.made[0].ends()
    assert agents.pool.deadline is not None
    agents.after(agents.pool.deadline - agents.clock.now)
    assert agents.lost == [("a", "its agent exited unexpectedly")]
    assert agents.pool.over and agents.pool.deadline is None


@pytest.mark.parametrize("status", [-signal.SIGTERM, 128 + signal.SIGTERM])
def test_agent_stopped_before_its_greeting_has_not_failed(agents_of: Make, status: int) -> None:
    agents = agents_of("a")
    agents.made[0].ends(status=status)
    [failure] = agents.failed
    assert failure.stopped and "was stopped by SIGTERM" in failure.reason


def test_agent_that_does_not_end_its_ranks_is_given_up(agents_of: Make) -> None:
    agents = agents_of(LOCAL, "b")
    for link in agents.made:
        link.says(HELLO)
        link.silent_at += 1000
    agents.pool.stop(30.0)
    agents.pool.stop(2.0)
    assert all(link.woken for link in agents.made)
    agents.made[1].says(NothingLeft())
    agents.after(2.0 + pool._STOP_S - 0.1)
    assert agents.lost == []
    agents.after(0.1)
    assert [reason for _, reason in agents.lost] == ["its agent does not answer"]
    assert agents.made[0].closed and agents.made[0].killed == [signal.SIGTERM]
    agents.after(100)
    assert len(agents.lost) == 1


def test_silence_after_a_goodbye_is_no_loss(agents_of: Make) -> None:
    agents = agents_of(LOCAL, "b")
    for link in agents.made:
        link.says(HELLO)
        link.says(BYE)
    assert agents.pool.deadline == agents.made[0].silent_at
    agents.after(SILENCE_S)
    assert all(link.closed and not link.killed for link in agents.made)
    assert agents.lost == []
    assert agents.pool.deadline is None


def test_stop_ends_connections_without_a_greeting(agents_of: Make) -> None:
    agents = agents_of(LOCAL, *(f"n{number}" for number in range(19)))
    agents.made[1].says(HELLO)
    count = len(agents.made)
    agents.pool.stop(2.0)
    assert agents.pool.is_settled
    assert [link.closed for link in agents.made] == [True, *[False] * (count - 1)]
    early, late = agents.made[2:4]
    early.says(HELLO)  # it has been on its way, and is to end
    early.ends(status=0)
    late.sends_nonsense("nothing")
    agents.after(pool._LEAVES_S - 0.1)
    assert [link.killed for link in (early, late)] == [[], [signal.SIGTERM]]
    assert not any(link.closed for link in (agents.made[1], *agents.made[4:]))
    agents.after(0.1)
    rest = agents.made[4:]
    assert all(link.closed and link.killed == [signal.SIGTERM] for link in rest)
    agents.after(100)
    assert agents.failures == [] and len(agents.made) == count


def test_transports_get_time_to_end(agents_of: Make) -> None:
    agents = agents_of(LOCAL, "b", "c")
    for link in agents.made:
        link.says(HELLO)
    agents.made[1].status = 0
    began = agents.clock.now
    agents.pool.hang_up(5)
    assert agents.clock.now == began + 5
    assert all(link.closed for link in agents.made)
    assert [link.killed for link in agents.made] == [[], [], [signal.SIGKILL]]
    for link in agents.made:
        link.status = 0
    agents.pool.hang_up(5)
    assert agents.clock.now == began + 5  # all had ended
