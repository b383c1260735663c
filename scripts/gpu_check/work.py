"""Checks of what NVIDIA's driver tells of GPUs, and of what a rank's work costs."""

from __future__ import annotations

import dataclasses
import json
import signal
import time

from gpu_check.check import Check, Seen
from gpu_check.limited import ask
from gpu_check.machine import LIMIT_S, Job, Machine, Ran
from gpu_check.probes import ROOT

_TRAINING = ROOT / "tests" / "programs" / "training.py"
# Shorter than the program that runs on the GPU meanwhile.
_STALL_S = 8
_SOON_S = 30.0
# What JAX prints at the end of every rank on a GPU.
_NOISE = ("WatchTasksAsync", "Additional GRPC", "=== Source Location Trace", ":CANCELLED:")
# A step may cost this much more than by hand; and the first one, loaded, at most this part.
_DEARER, _LOADED = 1.1, 0.8
# Seconds that a rank may need more than by hand, and how often the two take turns.
_LATER_S, _TURNS = 0.5, 3
_DEVICES = "import jax; jax.devices()"


def quiet(machine: Machine) -> Seen:
    """Check that a good run prints nothing but what the program prints."""
    ran = machine.run(machine.alone("quiet", "steps"))
    noise = [line for line in ran.output.splitlines() if any(word in line for word in _NOISE)]
    lines = f"{len(ran.output.splitlines())} lines, {len(noise)} of JAX's end"
    return Seen(ran.status == 0 and not noise, f"{lines}; {ran.ended}")


def epoch(machine: Machine) -> Seen:
    """Run a program that takes longer than --stall-timeout; stacks say what the GPUs do."""
    job = machine.sharing("epoch", "epoch", "--stall-timeout", _STALL_S)
    with machine.running(job) as running:
        begun = running.wait_for("begins its long loop")
        time.sleep(_STALL_S / 2)
        running.signal(signal.SIGQUIT)
        told = running.wait_for("'s GPU has been busy for", _SOON_S)
        ran = running.finish()
    words = ran.first("GPU", "busy for")
    loops = "; ".join(ran.of_ranks("its loop took")) or "no loop ended"
    well = ran.status == 0 and begun is not None and (told is not None or machine.rehearsal)
    return Seen(well, f"{words}; {loops}; {ran.ended}")


def usage(machine: Machine) -> Seen:
    """Check that the record has the GPU's name, its memory and its power."""
    path = machine.out / "usage.json"
    ran = machine.run(machine.alone("usage", "memory", "--report", path))
    if ran.status != 0:
        return Seen(False, ran.ended)
    [rank] = json.loads(path.read_text())["attempts"][-1]["ranks"]
    cards = [f"{gpu['name']}, {gpu['limit_mib']} MiB" for gpu in rank["gpu_use"]]
    seen = f"{'; '.join(cards) or 'no GPU'}; most memory {rank['gpu_peak_mib']} MiB"
    return Seen(bool(cards) and (rank["gpu_peak_mib"] or 0) > 1024, f"{seen}; {ran.ended}")


def start(machine: Machine) -> Seen:
    """Time one rank until it knows its devices, in turn with the same by hand."""
    hand, ours = [], []
    for _ in range(_TURNS):
        began = time.monotonic()
        well = ask([machine.python, "-c", _DEVICES], LIMIT_S, machine.environ).status == 0
        hand.append(time.monotonic() - began)
        job = Job("start", "", 1, program=(machine.python, "-c", _DEVICES))
        ran = machine.run(job)
        ours.append(ran.seconds)
        if not well or ran.status != 0:
            return Seen(False, f"by hand: {'well' if well else 'failed'}; launched: {ran.ended}")
    words = (", ".join(f"{seconds:.1f}" for seconds in each) for each in (hand, ours))
    later = min(ours) - min(hand)
    return Seen(later < _LATER_S or machine.rehearsal, "by hand {} s, launched {} s".format(*words))


def train(machine: Machine) -> Seen:
    """Time steps, in turn with the same by hand; the first one cold, and from the cache."""
    cache = ("--compile-cache", str(machine.out / "trained"))
    job = dataclasses.replace(
        machine.alone("train", "", *cache), program=(str(_TRAINING),), platform="any"
    )
    hand = ask([machine.python, str(_TRAINING)], LIMIT_S, _own_environ(machine))
    cold, warm = (
        machine.run(dataclasses.replace(job, name=f"train-{name}")) for name in ("cold", "warm")
    )
    told = [_parse(hand.out), _parse_run(cold), _parse_run(warm)]
    if None in told:
        return Seen(False, f"by hand: {hand.said}; launched: {cold.ended}, {warm.ended}")
    (_, by_hand), (cold_s, first), (warm_s, second) = (each or (0.0, 0.0) for each in told)
    steps = f"a step takes {by_hand:.2f} ms by hand, {first:.2f} and {second:.2f} ms launched"
    seen = f"{steps}; the first one {cold_s:.1f} s cold, {warm_s:.1f} s from the cache"
    well = min(first, second) < _DEARER * by_hand and warm_s < _LOADED * cold_s
    return Seen(well or machine.rehearsal, seen)


def _own_environ(machine: Machine) -> dict[str, str]:
    return {**machine.environ, **({"JAX_PLATFORMS": "cpu"} if machine.rehearsal else {})}


def _parse_run(ran: Ran) -> tuple[float, float] | None:
    return _parse(ran.output) if ran.status == 0 else None


def _parse(output: str) -> tuple[float, float] | None:
    """Return the seconds of the first step and the milliseconds of the others; None if missing."""
    line = next((line for line in output.splitlines() if "first " in line and " step " in line), "")
    words = line.partition("first ")[2].split()
    return (float(words[0]), float(words[3])) if len(words) > 3 else None


_NO_DRIVER = "no driver tells of CPU devices"
WORK = {
    "quiet": Check("a good run shows none of what JAX prints at its end", quiet),
    "epoch": Check(
        "a program on the GPU lasts longer than `--stall-timeout`: no stall; stacks say who works",
        epoch,
    ),
    "usage": Check("`--report` has the GPU's name and memory", usage, real=_NO_DRIVER),
    "start": Check("one rank starts about as fast as by hand", start),
    "train": Check("a step costs what it costs by hand; the cache shortens the first", train),
}
