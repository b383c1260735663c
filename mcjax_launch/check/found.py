"""What a check has found out: values, and nothing judged."""

from __future__ import annotations

from mcjax_launch.job.gpus import GpuShares
from mcjax_launch.launcher.peers import Gap
from mcjax_launch.protocol.messages import Devices, NetworkInterface, PythonFacts, Surveyed
from mcjax_launch.protocol.value import Value

#: Of the programs of a check, which leave a GPU's memory to jobs that may be running there.
OWN_VARIABLES = (("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),)


class Clock(Value):
    """How far a host's clock is ahead of the launcher's, and by how much that may be wrong."""

    ahead_s: float
    error_s: float

    @property
    def surely_s(self) -> float:
        """The least that it can be apart from the launcher's."""
        return max(0.0, abs(self.ahead_s) - self.error_s)


class HostFound(Value, kw_only=True):
    """What is known of a host.

    Args:
        ranks: how many it would get.
        unreachable: why it did not answer; "" if it did.
        devices: that JAX has there.
        devices_error: why that is not known, where it was asked for.
        share: of its GPUs, that each rank would get.
        interface: that faces the other hosts, where these are other machines.

    """

    name: str
    ranks: int
    unreachable: str = ""
    surveyed: Surveyed | None = None
    clock: Clock | None = None
    devices: tuple[Devices, ...] = ()
    devices_error: str = ""
    share: GpuShares = GpuShares()
    interface: NetworkInterface | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs a program there would see."""
        return sum(one.count for one in self.surveyed.gpus) if self.surveyed is not None else 0

    @property
    def python(self) -> PythonFacts | None:
        """The Python of its ranks."""
        return self.surveyed.python if self.surveyed is not None else None

    def version(self, package: str) -> str:
        """The version of a package in that Python; "" where there is none."""
        return self.python.packages.get(package, "") if self.python is not None else ""


class Network(Value, kw_only=True):
    """Who reaches whom.

    Args:
        coordinator: an address of rank 0's host that all reach; "" where none was needed or found.
        port: that was tried there.
        error: why there is none.
        pairs: so many were tried of the ways that collectives would take.
        gaps: those that are closed.

    """

    coordinator: str = ""
    port: int = 0
    error: str = ""
    pairs: int = 0
    gaps: tuple[Gap, ...] = ()


class Timing(Value):
    """A sum of so many bytes from each device that took part."""

    size: int
    devices: int
    seconds: float


class GlobalSum(Value, kw_only=True):
    """A job of our own that added a number of each device.

    Args:
        why_not: why it was not run, or did not come to its end; "" if it did.
        slices: the slice of each rank's devices, as JAX sees them.
        values: what the ranks have got, each once.
        right: a timed sum was right as well, everywhere.
        import_s, initialize_s, devices_s, first_s: how long the slowest rank took to import jax,
            to be through initialize(), to find its devices, and for the first sum.

    """

    why_not: str = ""
    started: bool = False
    ranks: int = 0
    devices: int = 0
    slices: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    right: bool = False
    import_s: float = 0.0
    initialize_s: float = 0.0
    devices_s: float = 0.0
    first_s: float = 0.0
    timings: tuple[Timing, ...] = ()

    @property
    def expected(self) -> int:
        """1 + 2 + ... + the number of devices."""
        return self.devices * (self.devices + 1) // 2


class Found(Value, kw_only=True):
    """All that a check has found out.

    Args:
        seconds: how long each part took, by its name; "all" for the whole check.
        on_cpu: the user wants CPU devices, whatever else there is.

    """

    hosts: tuple[HostFound, ...]
    network: Network
    total: GlobalSum
    seconds: dict[str, float]
    on_cpu: bool = False
