"""From a save to the first result of the changed program."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import rank_programs
from benchmarks.bench import Bench, environ
from benchmarks.measure import OURS, Measure
from benchmarks.peers import LOOP

_RANKS = 4
_ROUNDS = 5
# A user looks at the results before the next save.
_BETWEEN_S = 1.0


def saves(bench: Bench) -> list[Measure]:
    """Measure restarts of the guide's toy program: with --watch, by hand, and in a shell loop."""
    if not bench.knows("--watch"):
        return []
    toy = rank_programs.toy(bench)
    watched, program = (_Edited(toy, bench.folder / name) for name in ("watched", "by-hand"))
    ours = [*bench.ours, "-n", str(_RANKS)]
    loop = next(peer for peer in bench.peers if peer.name == LOOP)

    def in_a_loop() -> list[str]:
        argv = rank_programs.by_hand(bench, program.path, _RANKS)
        return loop.command(_RANKS, argv, bench.folder)

    def afresh(command: Callable[[], list[str]]) -> float:
        program.save()
        began = time.perf_counter()
        with _started(command()) as job:
            program.wait(job, 1)
            seconds = time.perf_counter() - began
            program.wait(job, _RANKS - 1)
        return seconds

    with ExitStack() as stack:
        job = stack.enter_context(_started([*ours, "--watch", watched.path], is_stopped=True))
        watched.wait(job, _RANKS)

        def again() -> float:
            time.sleep(_BETWEEN_S)
            began = time.perf_counter()
            watched.save()
            watched.wait(job, 1)
            seconds = time.perf_counter() - began
            watched.wait(job, _RANKS - 1)
            return seconds

        ways = {
            OURS: again,
            f"{OURS} without --watch": lambda: afresh(lambda: [*ours, program.path]),
            LOOP: lambda: afresh(in_a_loop),
        }
        seconds = bench.in_turn(_ROUNDS, ways)
    return [Measure(f"the first result of `toy.py` on {_RANKS} ranks after a save", "s", seconds)]


class _Edited:
    """A program whose results are marked anew by each save.

    Args:
        original: its file, which stays as it is.
        folder: made for it; --watch sees every save in its program's folder.

    """

    def __init__(self, original: str, folder: Path) -> None:
        folder.mkdir()
        self.path = str(shutil.copy(original, str(folder)))
        self._text = Path(original).read_text()
        self._saves = 0

    def save(self) -> None:
        """Change what it prints."""
        self._saves += 1
        Path(self.path).write_text(self._text.replace("result", self._mark))

    @property
    def _mark(self) -> str:
        return f"save {self._saves}:" if self._saves else "result"

    def wait(self, job: "subprocess.Popen[str]", count: int) -> None:
        """Read so many results of the latest save.

        Raises:
            ValueError: the job has ended.

        """
        assert job.stdout is not None
        while count:
            line = job.stdout.readline()
            if not line:
                raise ValueError(f"the job ended before it printed {self._mark}")
            count -= self._mark in line


@contextmanager
def _started(command: list[str], *, is_stopped: bool = False) -> "Iterator[subprocess.Popen[str]]":
    """Start a job, and let it end, or stop it at the end."""
    env, pipe = environ(JAX_PLATFORMS="cpu"), subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.DEVNULL, env=env, text=True
    ) as job:
        assert job.stdout is not None
        try:
            yield job
        finally:
            if is_stopped:
                job.terminate()
            job.stdout.read()
