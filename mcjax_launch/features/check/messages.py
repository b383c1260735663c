"""What --check asks of a host, and its answers."""

from __future__ import annotations

from ...kernel.wire.codec import Malformed, Nested
from ...kernel.wire.messages import HostFacts, Prepare, Question, ToLauncher


class TellTime(Question):
    """What time is it there? Answered by Time, at once."""


class Survey(Question):
    """What is there to run on? Answered by Surveyed, whatever of it is missing (--check).

    Args:
        wanted: as for a job, of which this host cannot refuse anything.

    """

    wanted: Prepare


class Probe(Question):
    """What do the ranks' Python and its JAX find? Answered by Probed (--check).

    Args:
        program: the source of `probe.py`.
        word: its argument.
        pythons: to choose from, as for a job.
        cwd: its working directory.
        env: further variables, as a rank would have them.
        most_s: how long it may take.

    """

    program: str
    word: str
    pythons: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    most_s: float


class Time(ToLauncher):
    """The host's clock, in seconds since 1970."""

    now_s: float

    answers = TellTime


class Probed(ToLauncher):
    """The end of what the probe printed.

    Args:
        python: that ran it; "" if there is none.
        printed: the end of its stdout.
        error: why it failed; "" if it did not.

    """

    python: str
    printed: str
    error: str

    answers = Probe


class GpuFacts(Nested):
    """GPUs of one kind: so many, with the driver's version."""

    name: str
    driver: str
    count: int


class GpuMemory(Nested):
    """Of one GPU, with its number as the vendor's tool has it."""

    number: int
    memory_kib: int
    free_kib: int

    def check(self) -> None:
        """A part of it is free."""
        if not 0 <= self.free_kib <= self.memory_kib:
            raise Malformed(f"{self.free_kib} of {self.memory_kib} KiB free")


class NetworkInterface(Nested):
    """An interface that has one of the host's addresses; 0: its speed or MTU is not known."""

    address: str
    name: str
    mtu: int
    mbit_s: int


class Surveyed(ToLauncher):
    """What a host has to run on.

    Args:
        facts: as in the answer to Prepare.
        refused: why ranks could not be started; "" if they could.
        cores: that a process there may use.
        load: runnable processes, a mean of the last minute.
        memory_kib, free_kib: of the machine; 0: not known.
        gpus: by kind, as its driver lists them.
        gpu_memory: of each, where that is known.
        shm_kib, shm_free_kib: of /dev/shm; 0: not known.
        interfaces: those of the addresses by which other hosts may reach it.

    """

    facts: HostFacts
    refused: str
    cores: int
    load: float
    memory_kib: int
    free_kib: int
    gpus: tuple[GpuFacts, ...] = ()
    gpu_memory: tuple[GpuMemory, ...] = ()
    shm_kib: int = 0
    shm_free_kib: int = 0
    interfaces: tuple[NetworkInterface, ...] = ()

    answers = Survey
