"""A rank's connections to its agent beside its hook's own: lines of JSON, and descriptors."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcjax_launch.features.session.messages import CallReady, ToRank
from mcjax_launch.wire.codec import to_json
from mcjax_launch.wire.hook_messages import Hello, HookMessage, Leaving
from mcjax_launch.wire.line import AgentLine


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[AgentLine, socket.socket]]:
    """A line, and the agent's end of it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "hook"))
        server.listen()
        line = AgentLine(str(tmp_path / "hook"), "3")
        agent, _ = server.accept()
        with agent:
            yield line, agent
        line.close()


def test_line_greets_before_its_messages(
    ends: tuple[AgentLine, socket.socket],
) -> None:
    line, agent = ends
    line.send(Leaving())
    said = agent.recv(4096).decode().splitlines()
    assert [HookMessage.of(line) for line in said] == [Hello(os.getpid(), "3"), Leaving()]


def test_replies_are_split_at_any_cut(
    ends: tuple[AgentLine, socket.socket],
) -> None:
    line, agent = ends
    data = "".join(f"{to_json(CallReady(call))}\n" for call in (1, 2)).encode()
    agent.sendall(b"no message\n" + data[:-3])
    assert line.receive(ToRank) == CallReady(1)
    assert line.receive(ToRank, 0.01) is None
    agent.sendall(data[-3:])
    assert line.receive(ToRank, 10) == CallReady(2)


def test_descriptors_come_with_a_message(ends: tuple[AgentLine, socket.socket]) -> None:
    line, agent = ends
    read, write = os.pipe()
    socket.send_fds(agent, [to_json(CallReady(1)).encode() + b"\n"], [write])
    os.close(write)
    assert line.receive(ToRank) == CallReady(1)
    [theirs] = line.descriptors
    os.write(theirs, b"x")
    os.close(theirs)
    assert os.read(read, 2) == b"x"
    os.close(read)


def test_missing_agent_drops_messages_without_an_error(
    ends: tuple[AgentLine, socket.socket],
) -> None:
    line, agent = ends
    agent.close()
    line.send(Leaving())
    assert line.receive(ToRank) is None


def test_missing_agent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        AgentLine(str(tmp_path / "hook"), "3")
