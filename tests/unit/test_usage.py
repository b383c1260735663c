"""How often an agent looks at what its ranks use."""

import os

import pytest
from fakes import Clock

from mcjax_launch.agent import usage
from mcjax_launch.agent.gpu_watch import GpuWatch
from mcjax_launch.agent.usage import UsageSampler
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire.messages import RankUsage, Usage

RANKS = {71: 0, 72: 1}
USED = (RankUsage(0, 1.5, 1024), RankUsage(1, 0.5, 2048))


class Looks:
    """A looker, and what its looks show."""

    def __init__(self, patch: pytest.MonkeyPatch, every_s: float) -> None:
        self.clock = Clock(patch, usage)
        self.came: list[Usage] = []
        patch.setattr(usage, "measure_usage", self._usage)
        gpus = GpuWatch(Loop(), "/package/hook/site")
        self.looker = UsageSampler(lambda: RANKS, self.came.append, gpus)
        self.looker.begin(every_s)

    def _usage(self, found: dict[int, object], ranks: dict[int, int]) -> tuple[RankUsage, ...]:
        assert os.getpid() in found
        assert ranks == RANKS
        return USED

    def after(self, seconds: float) -> int:
        """So many looks there have been when some more seconds have gone by."""
        self.clock.now += seconds
        self.looker.expire(self.clock.now)
        return len(self.came)


def test_usage_is_never_sampled_with_interval_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, 0)
    assert looks.looker.deadline is None
    assert looks.after(1000) == 0


def test_usage_is_sampled_at_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, 2.0)
    assert looks.looker.deadline == 102
    assert [looks.after(1), looks.after(1), looks.after(1.5), looks.after(0.5)] == [0, 1, 1, 2]
    assert looks.looker.deadline == 106
    assert looks.came == [Usage(USED)] * 2
