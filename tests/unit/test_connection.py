"""What comes from an agent before its greeting."""

import os
from collections.abc import Callable, Iterator

import pytest

from mcjax_launch.job.hosts import Host
from mcjax_launch.machine.loop import Loop
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.transport.pipes import Pipes
from mcjax_launch.wire.frames import MAGIC, encode_message
from mcjax_launch.wire.messages import VERSION, Greeting, Loading

HELLO = Greeting(VERSION)
Read = Callable[..., list[object]]


@pytest.fixture
def read() -> Iterator[Read]:
    """Return what a connection tells of these bytes of an agent, one read each."""
    fds: list[int] = []

    def read(*pieces: bytes, rests: bool = False) -> list[object]:
        theirs, to_agent, from_agent, ours, errors, errors_end = (
            fd for _ in range(3) for fd in os.pipe()
        )
        fds.extend((theirs, ours, errors_end))
        for fd in (to_agent, from_agent, errors):
            os.set_blocking(fd, False)
        told: list[object] = []
        loop = Loop()
        link = AgentConnection(
            Host(name="a", slots=1),
            Pipes(0, to_agent, from_agent, errors, "ssh"),
            loop,
            1,
            lambda link, frame: told.append(frame),
            lambda link, why: told.append(why),
        )
        for piece in pieces:
            os.write(ours, piece)
            loop.dispatch_ready(0.0)
        link.close()
        loop.close()
        return told

    yield read
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize(("word", "has"), [(b"True", True), (b"False", False)])
def test_loader_is_heard_amid_a_logins_noise(read: Read, word: bytes, has: bool) -> None:
    line = b"Welcome\nmcjax-launch-payload:" + word + b"\n"
    hello = MAGIC + encode_message(HELLO)
    assert read(line, hello) == [Loading(has), HELLO]
    assert read(line[:20], line[20:], b"* motd *\n" + hello) == [Loading(has), HELLO]
    assert read(line + hello) == [Loading(has), HELLO]


def test_command_that_a_login_prints_is_no_answer(read: Read) -> None:
    assert read(b'+ python -c "..." mcjax-launch-payload:\n', MAGIC + encode_message(HELLO)) == [
        HELLO
    ]
