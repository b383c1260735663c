"""Checks of options that change what happens in a rank, or that start no program."""

from __future__ import annotations

import dataclasses

from gpu_check.check import Check, Seen
from gpu_check.machine import NOTHING, Machine

_TOPICS = (["devices"], ["sum"])


def import_server(machine: Machine) -> Seen:
    """--preload jax: ranks that are forked find their GPUs."""
    ran = machine.run(machine.together("fork", "steps", "-v", "--preload", "jax"))
    forked = ran.first(" forked after ")
    joined = ran.first("joined at a private socket")
    done = len(ran.of_ranks("done")) == machine.ranks
    well = ran.status == 0 and done and joined != NOTHING
    if forked == NOTHING:
        forked = ran.first("--preload")
        well = False
    seen = [forked, joined, *ran.of_ranks(" of "), ran.ended]
    return Seen(well, "; ".join(seen))


def compile_once(machine: Machine) -> Seen:
    """--compile-once on: a rank loads what another one has compiled, also from an earlier run."""
    cache = machine.out / "compiled"
    options = ("-v", "--compile-once", "on", "--compile-cache", cache)
    runs = [machine.run(machine.together(f"once-{i}", "steps", *options)) for i in (1, 2)]
    done = [len(ran.of_ranks("done")) == machine.ranks and ran.status == 0 for ran in runs]
    loaded = [ran.first(" loaded, which saved ") for ran in runs]
    seen = "; ".join(f"{line}; {ran.ended}" for line, ran in zip(loaded, runs))
    return Seen(all(done) and NOTHING not in loaded, seen)


def verify(machine: Machine) -> Seen:
    """--verify-spmd: quiet where all run the same, and ended where one does not."""
    same = machine.run(machine.together("verify-same", "steps", "--verify-spmd"))
    differs = machine.run(machine.together("verify-differs", "differs", "--verify-spmd"))
    seen = f"same: {same.ended}; different: {differs.first('program')}; {differs.ended}"
    return Seen(same.status == 0 and differs.status == 1 and differs.says("--verify-spmd"), seen)


def check(machine: Machine) -> Seen:
    """--check."""
    job = machine.together("check", "")
    if not machine.several:
        job = machine.alone("check", "")
    options = (*job.options, "--check")
    ran = machine.run(dataclasses.replace(job, options=options))
    return Seen(ran.status == 0, "; ".join([*_told(ran.output), ran.ended]))


def _told(printed: str) -> list[str]:
    """Return the relevant lines of --check's findings, and its last line."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    told = [line for line in lines[:-1] if line[0] == "error" or line[1:2] in _TOPICS]
    return [" ".join(line) for line in [*told, *lines[-1:]]]


OPTIONS = {
    "fork": Check(
        "`--preload jax`: forked ranks find their GPUs; `-v` names where they join", import_server
    ),
    "once": Check("`--compile-once on`: ranks load what one has compiled", compile_once),
    "verify": Check(
        "`--verify-spmd`: quiet where all run the same, and ended where one does not",
        verify,
        gpus=2,
        why_several="NCCL gives two ranks no program on one GPU",
    ),
    "check": Check("`--check`", check),
}
