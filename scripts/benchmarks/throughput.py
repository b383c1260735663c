"""Lines of 100 bytes, through launchers into `cat`."""

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.bench import PYTHON, Bench, Way, timed
from benchmarks.measure import OURS, Measure
from benchmarks.peers import LOOP, Peer

# All ranks begin at one time, when they have started.
_BEGIN = """
import os, sys, time
time.sleep(max(0, float(sys.argv[2]) - time.time()))
"""
# Blocks of 64 KB, as from a program that buffers; the launchers are the limit.
_BLOCKS = """
block = (b'x' * 99 + b'\\n') * 640
for _ in range(int(sys.argv[1]) // len(block)):
    os.write(1, block)
"""
# One line at a time, as print() without a buffer; writing is the limit.
_LINES = """
line = b'x' * 99 + b'\\n'
for _ in range(int(sys.argv[1]) // len(line)):
    os.write(1, line)
"""
# A slow launcher gets this part of the output.
_SLOW = 50
# How long so many ranks may take to start.
_START_S = {4: 1.5, 64: 5.0}
# The command line of ranks with these arguments: how many bytes each, and when to begin.
Command = Callable[[Sequence[str]], list[str]]
_OPTIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    "--no-prefix": (4, ("--no-prefix",)),
    "--log-dir": (4, ("--log-dir", "{}")),
    "--timestamps": (4, ("--timestamps",)),
    "--collapse": (4, ("--collapse", "always")),
    "--collapse --timestamps": (4, ("--collapse", "always", "--timestamps")),
    "64 ranks": (64, ()),
}


def throughput(bench: Bench) -> list[Measure]:
    """MB/s of all ranks together, without what it takes to start them."""
    found = []
    for title, text, total, options in (
        ("written line by line", _LINES, 120_000_000, {}),
        ("written in blocks of 64 KB", _BLOCKS, 800_000_000, _OPTIONS),
    ):
        rank = [PYTHON, "-I", "-S", bench.write("lines.py", _BEGIN + text)]

        def of_peer(peer: Peer, count: int, rank: list[str] = rank) -> Command:
            form = peer.prefixed or peer.command
            return lambda arguments: form(count, [*rank, *arguments], bench.folder)

        ways: dict[str, Way] = {
            name: partial(_rate, _ours(launcher, 4, rank), 4, total)
            for name, launcher in bench.launchers.items()
        }
        for name, (count, more) in options.items():
            launcher = [*bench.ours, *(word.format(bench.folder / "logs") for word in more)]
            ways[f"{OURS}, {name}"] = partial(_rate, _ours(launcher, count, rank), count, total)
        for peer in bench.peers:
            theirs = total // _SLOW if peer.slow else total
            ways[peer.name] = partial(_rate, of_peer(peer, 4), 4, theirs)
        if options:
            loop = of_peer(bench.peers[0], 64)
            ways[f"{LOOP}, 64 ranks"] = partial(_rate, loop, 64, total)
        title = f"4 ranks, lines of 100 bytes, {title}"
        found.append(Measure(title, "MB/s", bench.in_turn(5, ways)))
        shutil.rmtree(bench.folder / "logs", ignore_errors=True)
    return found


def _ours(launcher: Sequence[str], count: int, rank: Sequence[str]) -> Command:
    return lambda arguments: [*launcher, "-n", str(count), *rank, *arguments]


def _rate(command: Command, count: int, total: int) -> float:
    """MB/s, of `total` bytes from so many ranks, from when they begin to the end of the job."""
    begin = time.time() + _START_S[count]
    arguments = [str(total // count), str(begin)]
    into_cat = ["bash", "-c", '"$@" | cat > /dev/null', "-", *command(arguments)]
    timed(into_cat, stderr=subprocess.DEVNULL)
    return total / 1e6 / (time.time() - begin)
