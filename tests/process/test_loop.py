"""The one wait for everything, on real descriptors."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcjax_launch.machine.loop import GONE, READ, WRITE, Loop

pytestmark = pytest.mark.quick


class Pipe:
    """A pipe, and what a loop has called back for its ends."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.calls: list[int] = []

    def called(self, ready: int) -> None:
        self.calls.append(ready)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    for fd in (pipe.read, pipe.write):
        os.close(fd)


def test_forgotten_descriptor_is_not_called(pipe: Pipe) -> None:
    loop = Loop()
    other = os.dup(pipe.write)

    def first(ready: int) -> None:
        pipe.called(ready)
        loop.forget(pipe.write)
        loop.forget(other)

    loop.watch(pipe.write, WRITE, first)
    loop.watch(other, WRITE, first)
    loop.dispatch_ready(None)
    os.close(other)
    assert pipe.calls == [WRITE]


def test_end_of_a_reader_reaches_idle_descriptors() -> None:
    loop = Loop()
    calls: list[int] = []
    read, write = os.pipe()
    loop.watch(write, 0, calls.append)
    os.close(read)
    loop.dispatch_ready(None)
    loop.forget(write)
    os.close(write)
    assert [ready & GONE for ready in calls] and all(calls)


def test_a_plain_file_is_always_ready(pipe: Pipe, tmp_path: Path) -> None:
    loop = Loop()
    (tmp_path / "file").write_bytes(b"text")
    calls: list[int] = []
    with (tmp_path / "file").open("rb") as file:
        loop.watch(file.fileno(), READ, calls.append)
        loop.watch(pipe.read, READ, pipe.called)
        loop.dispatch_ready(None)
        os.write(pipe.write, b"x")
        loop.dispatch_ready(None)
        loop.watch(file.fileno(), 0, calls.append)
        loop.dispatch_ready(time.monotonic())
        loop.forget(file.fileno())
    assert calls == [READ, READ] and pipe.calls == [READ, READ]


def test_deadline_too_late_for_the_system_is_clipped(pipe: Pipe) -> None:
    """Linux waits for at most 2**31 ms at once."""
    loop = Loop()
    loop.watch(pipe.write, WRITE, pipe.called)
    loop.dispatch_ready(time.monotonic() + 1e9)
    assert pipe.calls == [WRITE]
