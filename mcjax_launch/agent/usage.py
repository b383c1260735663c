"""Usage of a host's ranks: processor time and memory of all their processes."""

from __future__ import annotations

import time

from ..wire.messages import RankUsage, Usage
from .leftovers import find_rank
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .gpu_watch import GpuWatch
    from .system.unix import HostProcess


def measure_usage(
    found: Mapping[int, HostProcess], ranks: Mapping[int, int]
) -> tuple[RankUsage, ...]:
    """Return the processor time and memory that the processes of each rank use.

    Args:
        found: all processes of this host, by pid.
        ranks: rank of each rank's own process, by pid.

    """
    cpu_s = dict.fromkeys(ranks.values(), 0.0)
    rss_kib = dict.fromkeys(ranks.values(), 0)
    for process in found.values():
        rank = find_rank(process, found, ranks)
        if rank is None:
            continue
        cpu_s[rank] += process.cpu_s
        rss_kib[rank] += process.rss_kib
    return tuple(RankUsage(rank, cpu_s[rank], rss_kib[rank]) for rank in cpu_s)


class UsageSampler:
    """Periodic report of the processor time, memory and GPUs that ranks use.

    Args:
        ranks: called at each sample; returns the argument `ranks` of `measure_usage`.
        on_usage: called with each sample.
        gpus: reader of this host's GPUs.

    Attributes:
        deadline: time (time.monotonic) of the next sample; None if there is none.

    """

    def __init__(
        self,
        ranks: Callable[[], Mapping[int, int]],
        on_usage: Callable[[Usage], None],
        gpus: GpuWatch,
    ) -> None:
        self._ranks = ranks
        self._on_usage = on_usage
        self.gpus = gpus
        self._every_s = 0.0
        self.deadline: float | None = None

    def begin(self, every_s: float) -> None:
        """Sample every `every_s` seconds; never if 0."""
        self._every_s = every_s
        self.deadline = time.monotonic() + every_s if every_s else None
        if every_s:
            self.gpus.begin()

    def expire(self, now: float) -> None:
        """Take a sample if it is due, and set the next deadline."""
        if self.deadline is None or now < self.deadline:
            return
        self.sample()
        self.deadline = time.monotonic() + self._every_s

    def answer(self) -> None:
        """Take a sample now, and another with the GPUs' next reading."""
        self.sample()
        self.gpus.when_read = self.sample

    def sample(self) -> None:
        """Take a sample now and pass it to `on_usage`; have the GPUs read from now on."""
        found, ranks = {each.pid: each for each in system.list_processes()}, self._ranks()
        used = measure_usage(found, ranks)
        self._on_usage(Usage(used, self.gpus.collect(found, ranks)))
        if ranks:
            self.gpus.begin()
