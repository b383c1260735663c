"""What every benchmark is given: the launchers to compare, a folder, and taking turns."""

import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measure import OURS
from benchmarks.peers import Peer

ROOT = Path(__file__).resolve().parents[2]
#: The Python that has jax, and in which the ranks run.
PYTHON = str(ROOT / ".venv" / "bin" / "python")
_LIMIT_S = 600
_START = "import sys; sys.path.insert(0, {!r}); from mcjax_launch.__main__ import run; run()\n"

Way = Callable[[], float]
T = TypeVar("T")


def timed(command: list[str], **how: Any) -> float:
    """How long a command takes, in seconds; it must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command, process_group=0, **how)
    # Not by a wait with a timeout, which polls ever more seldom, up to every 50 ms.
    pidfd = os.pidfd_open(process.pid)
    try:
        if not select.select([pidfd], [], [], _LIMIT_S)[0]:
            raise subprocess.TimeoutExpired(command, _LIMIT_S)
        seconds = time.perf_counter() - began
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        os.close(pidfd)
    if status := process.wait():
        raise subprocess.CalledProcessError(status, command)
    return seconds


def cpu_s() -> float:
    """Return the processor time of all processes started from here that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() counts in 10 ms
    return used.ru_utime + used.ru_stime


class Bench:
    """What a benchmark works with.

    Args:
        folder: for its files.
        trees: by name, those whose launchers are compared; the first is ours.
        peers: the other launchers that are here.
        quick: few rounds, to see whether all works.
        most_rounds: of each benchmark; None for as many as it has.
        to_the_end: wait until JAX itself gives a failed job up, after 300 s.

    Attributes:
        launchers: the command line of each tree's launcher.

    """

    def __init__(
        self,
        folder: Path,
        trees: Mapping[str, Path],
        peers: list[Peer],
        *,
        quick: bool,
        most_rounds: int | None,
        to_the_end: bool,
    ) -> None:
        self.folder = folder
        self.peers = peers
        self.quick = quick
        self._most_rounds = most_rounds or (2 if quick else None)
        self.to_the_end = to_the_end
        self.launchers = {name: self._launcher(name, tree) for name, tree in trees.items()}

    @property
    def ours(self) -> list[str]:
        """The launcher of this tree."""
        return self.launchers[OURS]

    def _launcher(self, name: str, tree: Path) -> list[str]:
        """As the installed script, with its bytecode in place."""
        package = str(tree / "mcjax_launch")
        subprocess.run([PYTHON, "-m", "compileall", "-q", package], check=True)
        return [PYTHON, self.write(f"{name.replace(' ', '-')}.py", _START.format(str(tree)))]

    def write(self, name: str, text: str) -> str:
        """Write a file in the folder; return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def of_each(self, measure: Callable[[list[str]], float]) -> dict[str, Way]:
        """Return a way for the launcher of each tree."""
        return {name: partial(measure, command) for name, command in self.launchers.items()}

    def in_turn(self, rounds: int, ways: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        """Measure each way once a round, in random order; leave out a way that fails."""
        seen: dict[str, list[T]] = {name: [] for name in ways}
        for _ in range(min(self._most_rounds or rounds, rounds)):
            for name in random.sample(list(seen), len(seen)):
                try:
                    seen[name].append(ways[name]())
                except (subprocess.SubprocessError, OSError, ValueError) as error:
                    print(f"bench: {name} is left out: {error}", file=sys.stderr)
                    del seen[name]
        return {name: values for name, values in seen.items() if values}

    def knows(self, option: str) -> bool:
        """Return whether the launcher of this tree has an option."""
        done = subprocess.run([*self.ours, "--help", "all"], capture_output=True, text=True)
        return option in done.stdout


def environ(**more: str) -> dict[str, str]:
    """Return the environment with more variables."""
    return {**os.environ, **more}
