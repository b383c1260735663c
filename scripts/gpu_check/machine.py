"""The machine that the runs run on, and a run of the launcher there."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_check.limited import Answer, Started, ask, wait_for
from gpu_check.probes import ROOT, with_root

PROGRAM = ROOT / "tests" / "programs" / "on_gpus.py"
# The launcher's own limit; how much longer it may take; and what a SIGTERM has then. What needs no
# limit to end takes two minutes at most: JAX notices after 100 s that a rank is gone.
LIMIT_S = 240
SPARE_S = 60.0
GRACE_S = 10.0
#: A note on a hang comes after so long: NCCL may wait for a lost peer longer than people do.
NOTE_S = 10
#: In place of a line that the launcher has not said.
NOTHING = "nothing was said"
_MARK = "mcjax-launch: "
_MOST_RANKS = 4


class Hung(Exception):
    """The launcher was long past its own limit, and has been ended; in words."""


@dataclass(frozen=True)
class Ran:
    """A run of the launcher that has ended.

    Attributes:
        status: its exit status.

    """

    status: int
    output: str
    seconds: float

    @property
    def ended(self) -> str:
        """How, in words."""
        return f"exit status {self.status} after {self.seconds:.0f} s"

    @property
    def report(self) -> list[str]:
        """The launcher's own lines, without their mark."""
        lines = self.output.splitlines()
        return [line[len(_MARK) :] for line in lines if line.startswith(_MARK)]

    def says(self, *words: str) -> bool:
        """Whether the launcher's lines have all of these words."""
        return all(word in "\n".join(self.report) for word in words)

    def first(self, *words: str) -> str:
        """Return the launcher's first line that has all of these words, else NOTHING."""
        lines = (line for line in self.report if not line.startswith("hid "))
        return next((line for line in lines if all(word in line for word in words)), NOTHING)

    def of_ranks(self, *words: str) -> list[str]:
        """Lines of ranks that have all of these words, in order, without their prefix."""
        lines = [line.partition("] ")[2] for line in self.output.splitlines() if "] rank " in line]
        return sorted(line for line in lines if all(word in line for word in words))


@dataclass(frozen=True)
class Job:
    """A run of the launcher that is to be.

    Attributes:
        name: its output is kept under this.
        way: of the program; "": there is no program.
        ranks: how many.
        options: of the launcher.
        meets: how the ranks meet: "sum", over all devices, or "barrier", without NCCL.
        platform: of the ranks' devices, "any" of them; "": those that are to be checked. JAX goes
            on with the CPU where it finds no GPU.
        environ: what it has beside the environment.
        before: a command that runs the launcher, in words.
        program: in place of PROGRAM and its arguments, if it is another.

    """

    name: str
    way: str
    ranks: int
    options: tuple[str, ...] = ()
    meets: str = "sum"
    platform: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    program: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What the runs run on.

    Attributes:
        launcher: the Python that runs it.
        python: the ranks'.
        out: a folder for outputs.
        rehearsal: on CPU devices.
        count: of its GPUs; in a rehearsal, of CPU devices that stand for them.
        visible: CUDA_VISIBLE_DEVICES, if it is to have fewer than there are.

    """

    launcher: str
    python: str
    out: Path
    rehearsal: bool
    count: int
    visible: str = ""

    @property
    def several(self) -> bool:
        """Whether each of two ranks can have a GPU of its own, so that NCCL has work."""
        return self.count > 1

    @property
    def ranks(self) -> int:
        """Of a job whose ranks meet: one for each GPU, or two that share the only one."""
        return min(self.count, _MOST_RANKS) if self.several else 2

    @property
    def last(self) -> int:
        """The rank that does what the others do not."""
        return self.ranks - 1

    def together(self, name: str, way: str, *options: object) -> Job:
        """Return a job whose ranks meet: over NCCL if there are several GPUs."""
        if not self.several:
            return self.sharing(name, way, *options)
        own = self._devices("--gpus-per-process", "1")
        return Job(name, way, self.ranks, (*own, *map(str, options)))

    def sharing(self, name: str, way: str, *options: object, ranks: int = 2) -> Job:
        """Return a job whose ranks share all GPUs, and meet only in barriers."""
        shared = self._devices("--gpus-per-process", "all")
        return Job(name, way, ranks, (*shared, *map(str, options)), "barrier")

    def alone(self, name: str, way: str, *options: object) -> Job:
        """Return a job of one rank with a GPU of its own."""
        own = self._devices("--gpus-per-process", "1")
        return Job(name, way, 1, (*own, *map(str, options)))

    def _devices(self, *options: str) -> tuple[str, ...]:
        return ("-d", "1") if self.rehearsal else options

    @property
    def environ(self) -> dict[str, str]:
        """Of the runs."""
        environ = {**os.environ, "PYTHONPATH": with_root()}
        environ["MCJAX_TEST_TIME_SCALE"] = str(NOTE_S / 30)
        if self.visible:
            environ["CUDA_VISIBLE_DEVICES"] = self.visible
        return environ

    def command(self, job: Job) -> list[str]:
        """Return the whole command line of a job."""
        platform = job.platform or ("cpu" if self.rehearsal else "gpu")
        return [
            *(*job.before, self.launcher, "-m", "mcjax_launch", "-n", str(job.ranks)),
            *(*job.options, "--python", self.python, "--timeout", str(LIMIT_S)),
            *(job.program or ((str(PROGRAM), job.way, job.meets, platform) if job.way else ())),
        ]

    def ask_launcher(self, *words: str) -> Answer:
        """Ask the launcher something for which it starts no rank."""
        return ask([self.launcher, "-m", "mcjax_launch", *words], SPARE_S, self.environ)

    def run(self, job: Job) -> Ran:
        """Run a job to its end."""
        with self.running(job) as running:
            return running.finish()

    @contextlib.contextmanager
    def running(self, job: Job) -> Iterator[Running]:
        """Yield a running job; end it at the end of the `with`."""
        path = self.out / f"{job.name}.txt"
        command = self.command(job)
        more = [f"{name}={value}" for name, value in job.environ.items()]
        path.write_text(f"$ {' '.join(more + [shlex.quote(word) for word in command])}\n")
        environ = {**self.environ, **job.environ}
        with Started(command, path, cwd=ROOT, environ=environ, grace_s=GRACE_S) as started:
            yield Running(started, path)


class Running:
    """A run of the launcher under way; its output is in a file.

    Args:
        started: the launcher.
        path: of the file.

    """

    def __init__(self, started: Started, path: Path) -> None:
        self._started, self._path = started, path

    @property
    def output(self) -> str:
        """What has been said until now, without the command."""
        return self._path.read_text(errors="replace").partition("\n")[2]

    def wait_for(self, word: str, limit_s: float = LIMIT_S) -> float | None:
        """After how many seconds its output has a word; None if it never has."""
        began = time.monotonic()
        found = wait_for(lambda: word in self.output, self._started, limit_s)
        return time.monotonic() - began if found else None

    def signal(self, number: int) -> None:
        """Send the launcher a signal."""
        self._started.signal(number)

    def finish(self) -> Ran:
        """Wait for its end.

        Raises:
            Hung: it does not come.

        """
        status = self._started.wait(LIMIT_S + SPARE_S - self._started.seconds)
        if status is None:
            self._started.end()
            raise Hung(f"the launcher hung, and was ended after {self._started.seconds:.0f} s")
        ran = Ran(status, self.output, self._started.seconds)
        with self._path.open("a") as file:
            file.write(f"{ran.ended}\n")
        return ran
