"""The coordinator's port before the ranks start, and ranks that wait for it: real sockets."""

import contextlib
import select
import socket
import time

import pytest

from mcjax_launch.agent import network
from mcjax_launch.hook import coordinator as meeting
from mcjax_launch.machine.loop import Loop

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_port_is_free_again_at_once(host: str) -> None:
    """Of who is dismissed by us, and not leaves himself, the kernel knows for a minute more."""
    loop = Loop()
    held = network.reserve_port(host, 0)
    port = held.getsockname()[1]
    listener = network.PortProbe(held, loop)
    with socket.create_connection(("127.0.0.1", port)) as caller:
        loop.dispatch_ready(5)
        assert caller.recv(1) == b""
    listener.close()
    held.close()
    network.reserve_port(host, port).close()


def test_more_hosts_than_the_backlog_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection stays open at the host's end: only closing it here makes room for the next."""
    monkeypatch.setattr(network, "_BACKLOG", 1)
    loop = Loop()
    held = network.reserve_port("127.0.0.1", 0)
    listener = network.PortProbe(held, loop)
    with contextlib.ExitStack() as callers:
        waiting = [callers.enter_context(socket.socket()) for _ in range(10)]
        for caller in waiting:
            caller.setblocking(False)
            caller.connect_ex(held.getsockname())
        deadline = time.monotonic() + 20
        while waiting and time.monotonic() < deadline:
            loop.dispatch_ready(time.monotonic() + 0.1)
            _, connected, _ = select.select([], waiting, [], 0)
            waiting = [caller for caller in waiting if caller not in connected]
    listener.close()
    held.close()
    assert not waiting


@pytest.mark.parametrize(("ranks", "longest_s"), [(2, 0.01), (20, 0.01), (200, 0.1), (1000, 0.5)])
def test_many_ranks_do_not_exhaust_the_coordinators_host(
    ranks: int, longest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they knock 2000 times a second at the most, until somebody opens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 60:
                closed.listen()

        monkeypatch.setattr("time.sleep", sleep)
        filled = {"coordinator_address": address, "num_processes": ranks, "process_id": 1}
        assert not meeting._await_coordinator(filled, "")
    assert len(pauses) == 60
    assert max(pauses) == longest_s


def test_unresolved_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """At first it leads to a pod that is gone; a name server is not asked at every attempt."""
    with socket.socket() as live, socket.socket() as gone:
        live.bind(("127.0.0.1", 0))
        live.listen()
        gone.bind(("127.0.0.1", 0))
        asked: list[str] = []
        sleeps: list[float] = []

        def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
            asked.append(host)
            place = (gone if len(asked) < 3 else live).getsockname()
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        monkeypatch.setattr("time.sleep", sleeps.append)
        monkeypatch.setattr(meeting, "_ATTEMPT_S", 0.05)
        filled = {"coordinator_address": "pod-0.svc:1", "num_processes": 2, "process_id": 1}
        assert not meeting._await_coordinator(filled, "")
    assert asked == ["pod-0.svc"] * 3
    assert len(sleeps) > len(asked)
