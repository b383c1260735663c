"""A thread that gets no processor, by the kernel's figures."""

from mcjax_launch.agent.system import linux
from mcjax_launch.explain.hang_watch import _STILL_S


def test_starved_rank_does_not_stand_still() -> None:
    """One that is woken now and then on a busy machine does."""
    still = {(0.0, 0.0): True, (0.005, 0.2): True, (0.02, 0.0): False, (0.001, 5.0): False}
    for (ran_s, delayed_s), is_still in still.items():
        schedstat = f"{ran_s * 1e9:.0f} {delayed_s * 1e9:.0f} 17\n"
        assert (linux.compute_used_or_starved_s(schedstat) <= _STILL_S) is is_still
