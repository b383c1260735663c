"""The coordinator's port on hosts with TPU chips, whose networks open few."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from mcjax_launch.agent import startup
from mcjax_launch.agent.startup import HostPreparation
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire.messages import Bind, Prepare, Tpu

WANTED = Prepare(
    remote=True,
    command=None,
    program=None,
    missing="",
    pythons=(),
    without_jax="",
    env={},
    chdir="/",
    chdir_given=False,
    tpus=True,
    any_order=True,
)


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def open_ports(monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Two ports that nobody has, in place of those that networks of TPUs pass."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        found = tuple(probe.getsockname()[1] for probe in probes)
    monkeypatch.setattr(startup, "TPU_PORTS", found)
    return found


def port(stack: ExitStack, wanted: Prepare) -> int:
    """The port that a host reserves."""
    prepared = HostPreparation(wanted, "", stack.enter_context(closing(Loop())))
    for held in prepared.reserved:
        stack.enter_context(held)
    stack.callback(prepared.stop_listening)
    return prepared.facts.port


def chips(monkeypatch: pytest.MonkeyPatch, worker: int | None) -> None:
    """This host has four chips."""
    monkeypatch.setattr(startup, "survey_tpu", lambda environ: Tpu(4, "v5e", worker, 4))


def test_open_ports_are_used_first(
    cleanup: ExitStack, monkeypatch: pytest.MonkeyPatch, open_ports: tuple[int, ...]
) -> None:
    first = WANTED.copy_with(coordinator=Bind("", 0), listen=True)
    assert port(cleanup, first) not in open_ports  # no chips here
    chips(monkeypatch, 1)
    assert [port(cleanup, first) for _ in range(2)] == list(open_ports)
    assert port(cleanup, first) not in (0, *open_ports)


def test_worker_0_has_a_port_too(
    cleanup: ExitStack, monkeypatch: pytest.MonkeyPatch, open_ports: tuple[int, ...]
) -> None:
    chips(monkeypatch, 1)
    assert port(cleanup, WANTED) == 0
    chips(monkeypatch, 0)
    assert port(cleanup, WANTED.copy_with(any_order=False)) == 0
    assert port(cleanup, WANTED) == open_ports[0]
