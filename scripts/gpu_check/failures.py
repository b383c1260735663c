"""Checks of ranks that fail: the root cause is named, and the job starts again."""

from __future__ import annotations

from collections.abc import Callable

from gpu_check.check import Check, Seen
from gpu_check.machine import NOTHING, Machine


def _blames(name: str, *words: str) -> Callable[[Machine], Seen]:
    def check(machine: Machine) -> Seen:
        ran = machine.run(machine.together(name, name))
        blamed = ran.first(f"rank {machine.last} ", *words)
        well = ran.status != 0 and blamed != NOTHING
        said = blamed if well else ran.first(" failed")
        return Seen(well, f"{said}; {ran.ended}")

    return check


def restart(machine: Machine) -> Seen:
    """Check that after a rank died with GPU memory, the next attempt gets that memory."""
    ran = machine.run(machine.together("restart", "restart", "--max-restarts", 1))
    held = [line.partition(": ")[2] for line in ran.of_ranks("holds")]
    well = ran.status == 0 and ran.says("killed by SIGKILL", "attempt 2 succeeded")
    return Seen(
        well and len(held) == 2 * machine.ranks,
        "; ".join([ran.first("rank", "failed"), ran.first("attempt 2"), *dict.fromkeys(held)]),
    )


def barriers(machine: Machine) -> Seen:
    """Two ranks on one GPU, which meet in barriers alone."""
    ran = machine.run(machine.sharing("barriers", "steps"))
    done = ran.of_ranks("done")
    lines = "; ".join(ran.of_ranks(" of "))
    return Seen(ran.status == 0 and len(done) == 2, f"{lines}; {ran.ended}")


FAILURES = {
    "barriers": Check("two ranks share a GPU, and meet without NCCL", barriers),
    "killed": Check(
        "a rank is killed: the summary names it", _blames("killed", "failed: killed by SIGKILL")
    ),
    "raises": Check(
        "a rank raises: the summary names it", _blames("raises", "failed: ValueError: bad batch")
    ),
    "ended": Check(
        "a rank calls `os._exit(0)`: the summary names it",
        _blames("ended", "exited with 0 without leaving the job"),
    ),
    "restart": Check("`--max-restarts`: the next attempt has the memory of the first", restart),
}
