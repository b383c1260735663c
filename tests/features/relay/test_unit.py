"""Two agents' ends of a stream, with the launcher's relay between them: real unix sockets."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import parts
import pytest

from mcjax_launch.features.relay.agent import CoordinatorStreams
from mcjax_launch.features.relay.launcher import CoordinatorRelay
from mcjax_launch.features.relay.messages import (
    RELAY_WINDOW,
    RelayEnds,
    RelayListens,
    RelayOpens,
)
from mcjax_launch.kernel.wire.codec import Message
from mcjax_launch.kernel.wire.frames import Decoder, Raw
from mcjax_launch.kernel.wire.loop import Loop
from mcjax_launch.kernel.wire.messages import Credit

LOOP = Loop()
RELAYED = (Raw, RelayListens, RelayOpens, Credit, RelayEnds)


class Host:
    """An agent's streams, and both directions of its connection."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = str(path / "coord")
        self.streams = CoordinatorStreams(parts.agent(path, LOOP, self))
        self.up = b""
        self.down: list[object] = []
        self.log: list[object] = []

    # An uplink's.
    def send(self, *parts: bytes) -> None:
        self.up += b"".join(parts)

    def send_later(self, frames: list[bytes]) -> None:
        self.send(*frames)

    def turn(self) -> None:
        LOOP.turn(0)
        down, self.down = self.down, []
        for frame in down:
            assert isinstance(frame, RELAYED)
            self.streams.received(frame)

    def taken(self) -> list[object]:
        up, self.up = self.up, b""
        frames: list[object] = list(Decoder().feed(up))
        self.log += frames
        return frames


class Wire:
    """The launcher's connection to one of them."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def send(self, message: Message) -> None:
        self.host.down.append(message)

    def send_later(self, frame: bytes) -> None:
        self.host.down += Decoder().feed(frame)


class Job:
    """Rank 0's host, and two others."""

    def __init__(self, folder: Path) -> None:
        self.hosts = [Host(folder / name) for name in "abc"]
        self.wires = [Wire(host) for host in self.hosts]
        self.relay = CoordinatorRelay(SimpleNamespace(links=self.wires))  # type: ignore[arg-type]
        self.server = socket.socket(socket.AF_UNIX)
        self.open: list[socket.socket] = [self.server]

    def settle(self) -> None:
        """Let everything happen that can."""
        quiet = 0
        while quiet < 3:
            moved = False
            for host, wire in zip(self.hosts, self.wires, strict=True):
                moved |= bool(host.down)
                host.turn()
                for frame in host.taken():
                    assert isinstance(frame, RELAYED)
                    self.relay.received(wire, frame, 0.0)  # type: ignore[arg-type]
                    moved = True
            quiet = 0 if moved else quiet + 1

    def listen(self) -> None:
        self.server.bind(self.hosts[0].path)
        self.server.listen(10)
        self.hosts[0].streams._rank_0_listens()
        self.settle()

    def connect(self, host: int = 1) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        self.open.append(client)
        client.connect(self.hosts[host].path)
        client.setblocking(False)
        return client

    def accept(self) -> socket.socket:
        self.server.settimeout(5)
        connection, _ = self.server.accept()
        connection.setblocking(False)
        self.open.append(connection)
        return connection

    def pair(self, host: int = 1) -> tuple[socket.socket, socket.socket]:
        client = self.connect(host)
        client.send(b"hello")
        self.settle()
        served = self.accept()
        assert served.recv(100) == b"hello"
        return client, served


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    for one in made.open:
        one.close()
    for host in made.hosts:
        host.streams.launcher_lost()


def fill(end: socket.socket, job: Job) -> int:
    """Write until nobody takes any more; how much that was."""
    written = 0
    stuck_at = -1
    while stuck_at < written:
        stuck_at = written
        job.settle()
        with contextlib.suppress(BlockingIOError):
            while True:
                written += end.send(bytes(100_000))
    return written


def empty(end: socket.socket, job: Job) -> int:
    read = 0
    while True:
        try:
            data = end.recv(1 << 20)
        except BlockingIOError:
            job.settle()
            try:
                data = end.recv(1 << 20)
            except BlockingIOError:
                return read
        if not data:
            return read
        read += len(data)


def test_others_listen_as_soon_as_rank_0_does(job: Job) -> None:
    job.settle()
    assert not Path(job.hosts[1].path).exists()
    job.listen()
    job.connect(1)
    job.connect(2)


def test_bytes_of_two_hosts_go_both_ways(job: Job) -> None:
    job.listen()
    for host in (1, 2):
        client, served = job.pair(host)
        served.send(b"%d" % host)
        job.settle()
        assert client.recv(100) == b"%d" % host


def test_two_that_take_themselves_for_process_0(job: Job) -> None:
    other = socket.socket(socket.AF_UNIX)
    job.open.append(other)
    other.bind(job.hosts[1].path)
    other.listen(10)
    job.listen()
    job.pair(2)


def test_who_only_looks_opens_nothing(job: Job) -> None:
    job.listen()
    job.connect().close()
    job.settle()
    assert job.hosts[1].log == []


def test_a_slow_reader_holds_up_its_own_stream_alone(job: Job) -> None:
    job.listen()
    (slow, slow_served), (client, served) = job.pair(), job.pair()
    for end, other in ((slow, slow_served), (slow_served, slow)):
        job.hosts[0].log.clear()
        job.hosts[1].log.clear()
        written = fill(end, job)
        carried = sum(
            len(frame.payload)
            for frame in job.hosts[0].log + job.hosts[1].log
            if isinstance(frame, Raw)
        )
        # What the kernel's sockets hold at both ends, and one window between them.
        assert carried < written
        held = [len(one.unsent) for one in job.hosts[0].streams._streams.values()]
        held += [len(one.unsent) for one in job.hosts[1].streams._streams.values()]
        assert 0 < max(held) <= RELAY_WINDOW
        client.send(b"quick")
        job.settle()
        assert served.recv(100) == b"quick"
        assert empty(other, job) == written


@pytest.mark.parametrize("who", ["client", "served"])
def test_what_was_said_before_an_end_still_arrives(job: Job, who: str) -> None:
    job.listen()
    client, served = job.pair()
    end, other = (client, served) if who == "client" else (served, client)
    end.send(bytes(50_000))
    end.close()
    assert empty(other, job) == 50_000
    other.setblocking(True)
    assert other.recv(1) == b""
    job.settle()
    assert job.relay._ends == {}
    other.close()
    job.settle()
    assert [host.streams._streams for host in job.hosts] == [{}, {}, {}]


@pytest.mark.parametrize("host", [0, 1])
def test_a_host_that_is_gone(job: Job, host: int) -> None:
    job.listen()
    ends = job.pair()
    job.relay.lost(job.wires[host], 0.0)  # type: ignore[arg-type]
    job.settle()
    assert ends[host].recv(1) == b""
    assert job.relay._ends == {}
    if host == 0:
        late = job.connect(2)
        late.send(b"hello")
        job.settle()
        assert late.recv(1) == b""


def test_one_that_comes_before_rank_0_joins_again_waits(job: Job, tmp_path: Path) -> None:
    job.listen()
    job.server.close()
    Path(job.hosts[0].path).unlink()
    client = job.connect()
    client.send(b"first")
    gone = job.connect()
    gone.send(b"gone")
    job.settle()
    gone.close()
    job.settle()
    job.server = socket.socket(socket.AF_UNIX)
    job.open.append(job.server)
    job.listen()
    served = job.accept()
    assert served.recv(100) == b"first"
    served.send(b"answer")
    job.settle()
    assert client.recv(100) == b"answer"


def test_the_last_words_of_processes_that_have_ended(job: Job) -> None:
    """Nothing of them is left behind when the agent leaves."""
    job.listen()
    client, served = job.pair()
    fill(served, job)
    served.close()
    assert not job.hosts[0].streams.drain()  # until the other end takes it
    total = 0
    while not job.hosts[0].streams.drain():
        total += empty(client, job)
    assert total + empty(client, job) > RELAY_WINDOW
    assert job.hosts[0].streams._streams == {}


def test_without_a_launcher_all_ends(job: Job) -> None:
    job.listen()
    client, served = job.pair()
    for host in job.hosts:
        host.streams.launcher_lost()
    assert client.recv(1) == served.recv(1) == b""
