"""Checks of ranks that do not come, and of stacks."""

from __future__ import annotations

import signal

from gpu_check.check import Check, Seen
from gpu_check.machine import NOTHING, Machine

_AGAIN_S = 5.0
_ASKED = 20
_SOON_S = 30.0


def late(machine: Machine) -> Seen:
    """Check a rank that misses the first meeting of the ranks: NCCL's set-up, or a barrier."""
    stall = 60 if machine.several else 20  # NCCL has something to say, too
    ran = machine.run(machine.together("late", "late", "--stall-timeout", stall))
    missed = ran.first(f"rank {machine.last} did not reach a collective")
    noted = ran.first(" waited ", f"for rank {machine.last}, which is in load_batch")
    said = [line for line in (noted, missed) if line != NOTHING]
    return Seen(ran.status != 0 and bool(said), "; ".join([*said, ran.ended]))


def compiling(machine: Machine) -> Seen:
    """Check that a long compilation in a rank raises no alarm, and that stacks show it."""
    word = "compiling jit(long)"
    with machine.running(
        machine.together("compiling", "compiling", "--stall-timeout", 15)
    ) as running:
        running.wait_for(f"rank {machine.last}: [")
        for _ in range(_ASKED):
            if running.wait_for(word, _AGAIN_S) is not None:
                break
            running.signal(signal.SIGQUIT)
        ran = running.finish()
    took, alarm = ran.of_ranks("compiled for"), ran.first(" waited ")
    named = ran.says(f"rank {machine.last}: {word}")
    quiet = "no note" if alarm == NOTHING else f"a note: {alarm}"
    return Seen(
        ran.status == 0 and named and bool(took) and alarm == NOTHING,
        "; ".join([ran.first(word), *(took or ["nothing was compiled"]), quiet, ran.ended]),
    )


def stuck(machine: Machine) -> Seen:
    """jax-ml/jax 38503: one rank sleeps, the others wait or spin; ended, and started again."""
    options = ("--stall-timeout", 20, "--max-restarts", 1)
    ran = machine.run(machine.together("stuck", "stuck", *options))
    note = ran.first(" waited ", f"for rank {machine.last}, which is in load_batch")
    ended = ran.first("--stall-timeout: no rank")
    well = ran.status == 0 and NOTHING not in (note, ended)
    return Seen(well, f"{note}; {ended}; {ran.ended}")


def stacks(machine: Machine) -> Seen:
    """Stacks are asked for while a GPU computes, and the ranks go on."""
    with machine.running(machine.together("stacks", "loop")) as running:
        begun = running.wait_for("begins its long loop")
        running.signal(signal.SIGQUIT)
        after = running.wait_for("in loop_for_long", _SOON_S)
        too_late = "its loop took" in running.output
        ran = running.finish()
    came = "no stacks came" if after is None else f"stacks after {after:.1f} s"
    well = None not in (begun, after) and not too_late and ran.status == 0
    loops = "; ".join(ran.of_ranks("its loop took")) or "no loop ended"
    return Seen(well, f"{came}{', after the loop' if too_late else ''}; {loops}; {ran.ended}")


HANGS = {
    "stacks": Check(
        "`SIGQUIT` while GPUs are in a long loop: stacks come, the job goes on", stacks
    ),
    "late": Check("a rank does not come where the others meet first: it is named", late),
    "compiling": Check(
        "a rank compiles for long: no alarm, no stall; `SIGQUIT` names it and what it compiles",
        compiling,
    ),
    "stuck": Check("a rank is stuck: `--stall-timeout` ends the job, and it starts again", stuck),
}
