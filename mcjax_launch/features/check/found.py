"""What a survey has found out of hosts: values, and nothing judged."""

from __future__ import annotations

from mcjax_launch.features.check.messages import (
    DevicesCounted,
    NetworkInterface,
    PythonFacts,
    Surveyed,
)
from mcjax_launch.job.gpus import GpuShares
from mcjax_launch.kernel.launcher.peers import Gap
from mcjax_launch.kernel.wire.value import Value


class HostFound(Value, kw_only=True):
    """What is known of a host that has answered.

    Args:
        ranks: how many it would get.
        ahead_s: its clock at least is of the launcher's; below 0 if it is behind.
        devices: that JAX has there.
        share: of its GPUs, that each rank would get.
        interface: that faces the other hosts, where these are other machines.

    """

    name: str
    ranks: int
    surveyed: Surveyed
    ahead_s: float
    devices: DevicesCounted = DevicesCounted((), "")
    share: GpuShares = GpuShares()
    interface: NetworkInterface | None = None

    @property
    def python(self) -> PythonFacts:
        """The Python of its ranks."""
        return self.surveyed.python

    @property
    def gpus(self) -> int:
        """How many GPUs a program there would see."""
        return sum(one.count for one in self.surveyed.gpus)

    @property
    def platforms(self) -> set[str]:
        """Of the devices that JAX has there."""
        return {one.platform for one in self.devices.devices}


class Found(Value, kw_only=True):
    """What the survey has found out.

    Args:
        hosts: that have answered.
        lost: why a host did not answer, or no longer does, by its name.
        seconds: until all hosts were reached.
        ways: so many were tried of those that collectives would take between two hosts.
        gaps: those that are closed.
        uses: whose collectives the ranks use; see `peers.collectives`.

    """

    hosts: tuple[HostFound, ...]
    lost: dict[str, str]
    seconds: float
    ways: int = 0
    gaps: tuple[Gap, ...] = ()
    uses: str = ""
