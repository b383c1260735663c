"""Readers of the launcher's output that are slow, stop for a while, or go away: byte for byte."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import Ended, Jobs, Running
from terminal import Terminal

from mcjax_launch.console.unfinished import MOMENT_S

# More than all pipes and queues between a rank and the reader hold.
COUNT = 15_000
PROGRAM = """
import sys
line = f"{sys.argv[1]} line %05d {'x' * 80}\\n"
sys.stdout.write("".join(line % number for number in range(%d)))
""".replace("range(%d)", f"range({COUNT})")
# What the launcher prints of that, but for carriage returns and prefixes.
ALL = 2 * COUNT * len(f"0 line 00000 {'x' * 80}\n")
RANKS = ("-n", 2, sys.executable, "-c", PROGRAM, "{process_id}")


def written(rank: int) -> str:
    return "".join(f"{rank} line {number:05d} {'x' * 80}\n" for number in range(COUNT))


def check_exact(shown: str) -> None:
    """Fail unless each rank's lines are shown, whole, in order, once, and nothing else is."""
    lines = shown.splitlines(keepends=True)
    found = 0
    for rank in range(2):
        mark = f"[{rank}] "
        own = [line.removeprefix(mark) for line in lines if line.startswith(f"{mark}{rank} ")]
        assert "".join(own) == written(rank)
        found += len(own)
    strange = [line for line in lines if not line.endswith("x\n")]
    assert found == len(lines), strange[:3]


def read_slowly(fd: int) -> bytes:
    """Read a little at a time."""
    return _read(fd, 1 << 13, 0.002)


def read_with_stops(fd: int) -> bytes:
    """Read nothing for several moments at first, and again and again."""
    time.sleep(4 * MOMENT_S)
    return _read(fd, 1 << 20, 2 * MOMENT_S)


def _read(fd: int, most: int, pause_s: float) -> bytes:
    data, pause_at = bytearray(), most
    while len(data) < ALL and (piece := os.read(fd, 1 << 13)):
        data += piece
        if len(data) >= pause_at:
            pause_at = len(data) + most
            time.sleep(pause_s)
    return bytes(data)


READERS = pytest.mark.parametrize("read", [read_slowly, read_with_stops])


def fed(running: Running, read: Callable[[int], bytes]) -> Ended:
    """Read a launcher's stdout in that way; how it has ended."""
    assert running.process.stdout is not None
    running.out += read(running.process.stdout.fileno())
    return running.finish()


@READERS
def test_slow_reader_of_a_pipe_loses_nothing(
    jobs: Jobs, tmp_path: Path, read: Callable[[int], bytes]
) -> None:
    ended = fed(jobs.start("--log-dir", tmp_path, *RANKS), read)
    check_exact(ended.stdout)
    assert (ended.status, ended.err) == (0, b"mcjax-launch: logs: %b\n" % bytes(tmp_path))
    for rank in range(2):
        assert (tmp_path / f"{rank}.out").read_text() == written(rank)


@READERS
def test_slow_terminal_loses_nothing(
    at_terminal: Callable[..., Terminal], read: Callable[[int], bytes]
) -> None:
    terminal = at_terminal("-q", *RANKS)
    shown = read(terminal.fd).decode()
    assert terminal.finish() == 0
    check_exact((shown + terminal.shown).replace("\r\n", "\n"))


def test_reader_that_goes_away_keeps_the_logs_whole(jobs: Jobs, tmp_path: Path) -> None:
    running = jobs.start("--log-dir", tmp_path, *RANKS)
    pipe = running.process.stdout
    assert pipe is not None
    time.sleep(4 * MOMENT_S)
    while len(running.out) < 1 << 18:  # what is left is more than pipes and queues hold
        running.read_some()
    pipe.close()
    running.process.stdout = None
    assert running.finish().status == 141
    *lines, cut = running.out.decode().splitlines(keepends=True)
    for rank in range(2):
        own = "".join(line[4:] for line in lines if line.startswith(f"[{rank}] "))
        assert written(rank).startswith(own)
        assert (tmp_path / f"{rank}.out").read_text().startswith(own)
    assert all(line.endswith("x\n") for line in lines), cut
