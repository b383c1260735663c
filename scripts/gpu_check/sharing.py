"""Checks of which devices a rank gets."""

from __future__ import annotations

import dataclasses
import signal

from gpu_check.check import Check, Seen
from gpu_check.machine import NOTHING, Job, Machine, Ran

_MOST_LINES = 8
_HIDDEN_S = 120.0


def devices(machine: Machine) -> Seen:
    """-n N --gpus-per-process 1: a GPU for each rank, and what they compute together."""
    several = machine.several
    job = machine.together("devices", "steps") if several else machine.alone("devices", "steps")
    ran = machine.run(job)
    lines = ran.of_ranks(" of ")
    return Seen(_all_done(ran, job.ranks), "; ".join([*lines[:_MOST_LINES], _how(ran)]))


def bare(machine: Machine) -> Seen:
    """-n N without any option on GPUs."""
    if not machine.several:
        return _two_on_one(machine)
    ran = machine.run(Job("bare", "steps", machine.count))
    lines = ran.of_ranks(" of ")[:_MOST_LINES]
    well = _all_done(ran, machine.count) and _devices_each(ran, 1)
    return Seen(well, "; ".join([*lines, _how(ran)]))


def _two_on_one(machine: Machine) -> Seen:
    ran = machine.run(Job("bare", "steps", 2, meets="barrier"))
    line = ran.first("2 ranks cannot share 1 GPU", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.375", "-d K")
    well = _all_done(ran, 2) and line != NOTHING
    return Seen(well, f"2 ranks on the only GPU: {line}; {_how(ran)}")


def several_each(machine: Machine) -> Seen:
    """-n with fewer ranks than GPUs: several for each, and what they compute together."""
    each = next(number for number in range(2, machine.count + 1) if machine.count % number == 0)
    ranks = machine.count // each
    options = ("-d", str(each)) if machine.rehearsal else ()
    ran = machine.run(Job("several", "steps", ranks, options))
    lines = ran.of_ranks(" of ")[:_MOST_LINES]
    well = _all_done(ran, ranks) and _devices_each(ran, each)
    return Seen(well, f"{each} for each: {'; '.join([*lines, _how(ran)])}")


def cpu_wins(machine: Machine) -> Seen:
    """-d 1 where JAX_PLATFORMS=cuda is exported."""
    environ = {"JAX_PLATFORMS": "cuda"}
    ran = machine.run(Job("cpu-wins", "steps", 2, ("-d", "1"), platform="cpu", environ=environ))
    line = ran.first("JAX_PLATFORMS=cuda")
    on_cpu = len(ran.of_ranks("Cpu", " of ")) == 2
    well = _all_done(ran, 2) and on_cpu and "the ranks use the CPU" in line
    return Seen(well, f"{line}; {_how(ran)}")


def hidden(machine: Machine) -> Seen:
    """One of two ranks has CUDA_VISIBLE_DEVICES="": named at once, not after XLA's two minutes.

    By its source, JAX either uses the CPU there or ends the rank; both are to be said.
    """
    job = dataclasses.replace(machine.sharing("hidden", "hidden"), platform="any")
    with machine.running(job) as running:
        after = running.wait_for("uses the CPU", _HIDDEN_S)
        running.signal(signal.SIGINT)  # XLA would wait on
        ran = running.finish()
    if after is not None:
        line = ran.first("rank 1 uses the CPU", "CUDA_VISIBLE_DEVICES=''")
        return Seen(line != NOTHING, f"{line}, {after:.0f} s after the start")
    failed, hint = ran.first("rank 1 ", "failed"), ran.first("hint: JAX sees no GPU")
    well = NOTHING not in (failed, hint)
    return Seen(well, f"{failed}; {hint}; {'; '.join(ran.of_ranks(' of '))}; {ran.ended}")


def _all_done(ran: Ran, ranks: int) -> bool:
    return ran.status == 0 and len(ran.of_ranks("done")) == ranks


def _devices_each(ran: Ran, count: int) -> bool:
    return all(line.count("id=") == count for line in ran.of_ranks(" of "))


def _how(ran: Ran) -> str:
    return ran.ended if ran.status != 0 else f"all done after {ran.seconds:.0f} s"


_NO_SHARE = "CPU devices are not shared out"
SHARING = {
    "devices": Check(
        "`--gpus-per-process 1`: each rank has its own; they compute together", devices
    ),
    "bare": Check(
        "`-n N` alone: each rank has its share, or a line says why not", bare, real=_NO_SHARE
    ),
    "several": Check(
        "`-n` below the number of GPUs: several for each rank",
        several_each,
        gpus=2,
        why_several="one cannot be several",
    ),
    "hidden": Check(
        'a rank with `CUDA_VISIBLE_DEVICES=""`: the variable is named at once',
        hidden,
        real="there is no GPU to hide",
    ),
    "cpu-wins": Check(
        "`-d 1` where `JAX_PLATFORMS=cuda` is exported: the CPU, and a line", cpu_wins
    ),
}
