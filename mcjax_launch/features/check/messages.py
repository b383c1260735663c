"""Questions of --check to a host, and their answers."""

from __future__ import annotations

from ...kernel.wire.codec import Malformed, Nested
from ...kernel.wire.messages import HostFacts, Prepare, Question, ToLauncher


class ReadClock(Question):
    """Question for the host's clock: answered by Time, at once."""


class Survey(Question):
    """Question for a host's cores, memory, GPUs and network interfaces: answered by Surveyed.

    Args:
        wanted: what a job would reserve there. If the host cannot run ranks, Surveyed says why in
            `refused`; the agent does not send Refused.

    """

    wanted: Prepare


class Probe(Question):
    """Order to run `probe.py` in the ranks' Python: answered by Probed.

    Args:
        program: the source of `probe.py`.
        word: its argument.
        pythons: interpreters to choose from, as for a job.
        cwd: its working directory.
        env: further variables, as a rank would have them.
        most_s: its time limit in seconds.

    """

    program: str
    word: str
    pythons: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    most_s: float


class Time(ToLauncher):
    """Reading of the host's clock, in seconds since 1970."""

    now_s: float

    answers = ReadClock


class Probed(ToLauncher):
    """Output of the probe.

    Args:
        python: the interpreter that ran it; "" if there is none.
        printed: the end of its stdout.
        error: why the probe failed; "" if it did not.

    """

    python: str
    printed: str
    error: str

    answers = Probe


class GpuFacts(Nested):
    """Name, driver version and number of a host's GPUs of one kind."""

    name: str
    driver: str
    count: int


class GpuMemory(Nested):
    """Total and free memory of a GPU, with the number that the vendor's tool gives it."""

    number: int
    memory_kib: int
    free_kib: int

    def check(self) -> None:
        """Reject more free memory than there is."""
        if not 0 <= self.free_kib <= self.memory_kib:
            raise Malformed(f"{self.free_kib} of {self.memory_kib} KiB free")


class NetworkInterface(Nested):
    """Interface that has one of the host's addresses; speed and MTU are 0 if unknown."""

    address: str
    name: str
    mtu: int
    mbit_s: int


class Surveyed(ToLauncher):
    """Facts about a host's cores, memory, GPUs and network interfaces.

    Args:
        facts: the facts that also answer Prepare.
        refused: reason why ranks could not be started; "" if they could.
        cores: the number of cores that a process there may use.
        load: the mean number of runnable processes in the last minute.
        memory_kib, free_kib: total and free memory of the machine; 0 if unknown.
        gpus: the GPUs by kind, as the driver lists them.
        gpu_memory: the memory of each GPU, if known.
        shm_kib, shm_free_kib: size and free part of /dev/shm; 0 if unknown.
        interfaces: interfaces at whose addresses other hosts may reach the host.

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
