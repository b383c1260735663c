"""The agent's side of --coordinator ssh, where a system gives no more descriptors."""

import os
import resource
import socket
from pathlib import Path

import parts

from mcjax_launch.features.relay.agent import CoordinatorStreams
from mcjax_launch.features.relay.messages import RelayListens
from mcjax_launch.kernel.wire.loop import Loop
from mcjax_launch.kernel.wire.uplink import Uplink


def test_who_comes_when_there_is_no_descriptor_is_accepted_later(tmp_path: Path) -> None:
    out, uplink = os.pipe()
    os.set_blocking(out, False)
    loop = Loop()
    streams = CoordinatorStreams(parts.agent(tmp_path, loop, Uplink(uplink, loop)))
    streams.received(RelayListens())
    ranks = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    for rank in ranks:
        rank.connect(str(tmp_path / "coord"))
        rank.send(b"hello")
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, limit[1]))
    held = []
    try:
        while True:  # all that are below the limit
            try:
                held.append(os.dup(spare))
            except OSError:
                break
        os.close(spare)
        for _ in range(5):
            loop.turn(0)
        assert os.read(out, 65536).count(b"hello") == 1
        ranks[0].close()  # with that both ends become free
        for _ in range(10):
            loop.turn(0)
        assert os.read(out, 65536).count(b"hello") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    for fd in held:
        os.close(fd)
    streams.launcher_lost()
    for rank in ranks:
        rank.close()
    os.close(out)
    os.close(uplink)
