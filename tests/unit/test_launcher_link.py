"""The agent's connection to the launcher: what comes, what is sent, and when it is lost."""

import os
from collections.abc import Iterator

import pytest
from fakes import Clock

from mcjax_launch.agent import launcher_link
from mcjax_launch.agent.launcher_link import LauncherLink
from mcjax_launch.machine.loop import Loop
from mcjax_launch.machine.uplink import Uplink
from mcjax_launch.wire import frames
from mcjax_launch.wire.frames import MAGIC, PING_S, SILENCE_S, encode_message
from mcjax_launch.wire.messages import (
    VERSION,
    Bye,
    Credit,
    Forward,
    Greeting,
    Ping,
    Usage,
)


class Ends:
    """Both ends of an open link."""

    def __init__(self, clock: Clock, *, remote: bool) -> None:
        self.clock = clock
        self.loop = Loop()
        theirs, self.launcher = os.pipe()
        self.out, ours = os.pipe()
        os.set_blocking(self.out, False)
        self.fds = [theirs, self.launcher, self.out, ours]
        self.came: list[object] = []
        self.busy_s = 0.0  # that it takes to act on a message
        self.lost = 0
        self.link = LauncherLink(
            theirs,
            Uplink(ours, self.loop),
            self.loop,
            remote=remote,
            on_message=self._take,
            on_lost=self._lose,
        )
        self.link.open()
        self.greeting = os.read(self.out, 65536)

    def _take(self, message: object) -> None:
        self.came.append(message)
        self.clock.now += self.busy_s

    def _lose(self) -> None:
        self.lost += 1

    def write(self, data: bytes) -> list[object]:
        """The launcher writes this; what the agent has taken from it."""
        os.write(self.launcher, data)
        self.loop.dispatch_ready(0)
        taken, self.came[:] = self.came[:], []
        return taken

    def hang_up(self) -> None:
        os.close(self.launcher)
        self.fds.remove(self.launcher)
        self.loop.dispatch_ready(0)

    def after(self, seconds: float) -> list[object]:
        """What the agent has sent when so many more seconds have gone by."""
        self.clock.now += seconds
        self.link.expire(self.clock.now)
        try:
            return list(frames.Decoder().feed(os.read(self.out, 65536)))
        except BlockingIOError:
            return []


@pytest.fixture(params=["remote"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    made = Ends(Clock(monkeypatch, launcher_link), remote=request.param == "remote")
    yield made
    for fd in made.fds:
        os.close(fd)


def test_link_greets_and_passes_on_complete_messages(ends: Ends) -> None:
    assert ends.greeting == MAGIC + encode_message(Greeting(VERSION))
    data = encode_message(Credit(7)) + encode_message(Forward(10))
    assert ends.write(data[:5]) == []
    assert ends.write(data[5:-1]) == [Credit(7)]
    assert ends.write(data[-1:]) == [Forward(10)]


@pytest.mark.parametrize("ends", ["local", "remote"], indirect=True)
def test_end_of_file_ends_the_link(ends: Ends) -> None:
    ends.hang_up()
    assert ends.lost == 1
    assert ends.link.deadline is None
    ends.link.send(Ping())
    assert ends.link.uplink.empty
    assert ends.after(2 * SILENCE_S) == []
    ends.loop.dispatch_ready(0)
    assert ends.lost == 1


@pytest.mark.parametrize("ends", ["local"], indirect=True)
def test_silence_on_one_machine_is_no_loss(ends: Ends) -> None:
    assert ends.link.deadline is None
    assert ends.after(1000) == []
    assert ends.lost == 0


def test_link_over_a_network_sends_pings(ends: Ends) -> None:
    assert ends.after(0) == [Ping()]
    assert ends.link.deadline == ends.clock.now + PING_S
    assert ends.after(PING_S - 0.1) == []
    assert ends.after(0.1) == [Ping()]


def test_silence_over_a_network_ends_the_link(ends: Ends) -> None:
    """Any byte ends the silence."""
    for data in (b"", encode_message(Ping()), encode_message(Credit(7))[:3]):
        if data:
            ends.write(data)
        ends.after(SILENCE_S - 1)
        assert ends.lost == 0
    assert ends.link.deadline == ends.clock.now + 1
    assert ends.after(1) == []
    assert ends.lost == 1
    assert ends.link.deadline is None
    ends.after(SILENCE_S)
    assert ends.lost == 1


def test_busy_handling_of_a_message_is_no_silence(ends: Ends) -> None:
    """While the agent copies a big file, say, it reads nothing."""
    ends.busy_s = 5 * SILENCE_S
    ends.write(encode_message(Credit(7)))
    assert ends.after(SILENCE_S - 1) == [Ping()]
    assert ends.lost == 0


def test_link_sends_only_pings_after_its_bye(ends: Ends) -> None:
    """A launcher that waits for a slow reader may still ask; an answer would make no sense."""
    ends.link.send(Bye((), ()))
    assert ends.write(encode_message(Credit(7))) == []
    ends.link.send(Usage(()))
    assert ends.after(0) == [Bye((), ()), Ping()]
