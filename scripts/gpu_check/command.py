"""The command line of `scripts/gpu-check`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from gpu_check import probes
from gpu_check.about import About
from gpu_check.check import Check, NotRun, Seen
from gpu_check.failures import FAILURES
from gpu_check.hangs import HANGS
from gpu_check.machine import LIMIT_S, SPARE_S, Hung, Machine
from gpu_check.memory import MEMORY
from gpu_check.options import OPTIONS
from gpu_check.probes import VENV, Driver, Missing
from gpu_check.result import FAILED, HEAD, NOT_RUN, OK, Result, counts, save
from gpu_check.sharing import SHARING
from gpu_check.work import WORK

CHECKS: dict[str, Check] = {**WORK, **SHARING, **FAILURES, **MEMORY, **HANGS, **OPTIONS}
_IN_USE_MIB = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Look at the machine, run what is asked for, and print it as Markdown."""
    parser = _parser()
    options = parser.parse_args(argv)
    if unknown := set(options.checks) - set(CHECKS):
        parser.error(f"no such check: {', '.join(sorted(unknown))}; there are {' '.join(CHECKS)}")
    signal.signal(signal.SIGTERM, _leave)  # ends the run under way
    try:
        machine, about = look(options)
        return run_all(machine, about, options.checks or list(CHECKS))
    except Missing as missing:
        say(str(missing))
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def say(line: str) -> None:
    print(f"gpu-check: {line}", flush=True)


def look(options: argparse.Namespace) -> tuple[Machine, About]:
    """Find out what is here, and say it.

    Raises:
        Missing: nothing can be run.

    """
    launcher = probes.launcher_python()
    version = probes.launcher_version(launcher)
    say(f"{probes.short(launcher)} runs mcjax-launch {version}")
    driver = Driver() if options.cpu else probes.driver()
    for line in _of_driver(driver):
        say(line)
    python = options.python or (str(VENV) if VENV.exists() else launcher)
    visible = _first_visible(options.gpus) if options.gpus and not options.cpu else ""
    environ = {
        **os.environ,
        **({"JAX_PLATFORMS": "cpu"} if options.cpu else {}),
        **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}),
    }
    jax = probes.jax_of(python, environ)
    if jax.platform != "gpu" and not options.cpu:
        raise probes.no_gpu(python, jax, driver)
    if driver.why_none:
        say(driver.why_none)
    count = (options.gpus or 2) if options.cpu else len(jax.kinds)
    say(f"{probes.short(python)} has jax {jax.jax}, which sees {', '.join(jax.kinds)}")
    machine = Machine(launcher, python, Path(options.out).resolve(), options.cpu, count, visible)
    return machine, About.of(machine, version, driver, jax)


def _first_visible(count: int) -> str:
    """Return the first of the visible GPUs, as a value of CUDA_VISIBLE_DEVICES."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given is not None else list(map(str, range(count)))
    return ",".join(names[:count])


def _of_driver(driver: Driver) -> list[str]:
    lines = []
    if driver.cards:
        names = ", ".join(sorted({card.name for card in driver.cards}))
        lines.append(f"{len(driver.cards)} x {names}, driver {driver.version}")
    if used := [str(card.used_mib) for card in driver.cards if card.used_mib > _IN_USE_MIB]:
        lines.append(
            f"{', '.join(used)} MiB of memory are in use already, and checks of memory may fail: "
            "nvidia-smi shows by which job"
        )
    return lines


def run_all(machine: Machine, about: About, names: Sequence[str]) -> int:
    """Run these checks one after another; the exit status."""
    began, results = time.monotonic(), list[Result]()
    machine.out.mkdir(parents=True, exist_ok=True)
    print(f"\n{about.headline}\n\n{HEAD}", flush=True)
    for name in names:
        if sys.stderr.isatty():
            print(f"... {name}", end="\r", file=sys.stderr, flush=True)
        results.append(result_of(name, machine))
        print(results[-1].row, flush=True)
        save(machine.out / "result.json", about, results)  # the machine may be taken back any time
    seconds = time.monotonic() - began
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    print()
    say(f"{counts(results)}, in {took}; result.json and outputs are in {machine.out}")
    return 1 if any(result.verdict == FAILED for result in results) else 0


def result_of(name: str, machine: Machine) -> Result:
    """Run a check, and return its result."""
    check, began = CHECKS[name], time.monotonic()
    try:
        seen = check.try_on(machine)
    except NotRun as why:
        return Result(name, NOT_RUN, check.title, str(why), 0.0)
    except Exception as error:  # of one check, which is not to cost the others
        words = str(error) if isinstance(error, Hung) else f"{type(error).__name__}: {error}"
        seen = Seen(False, words)
    verdict = OK if seen.well else FAILED
    return Result(name, verdict, check.title, seen.text, round(time.monotonic() - began, 1))


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _number(word: str) -> int:
    number = int(word)
    if number < 1:
        raise ValueError
    return number


def _parser() -> argparse.ArgumentParser:
    longest = (LIMIT_S + SPARE_S) / 60
    parser = argparse.ArgumentParser(
        prog="scripts/gpu-check",
        description="Runs what needs GPUs, and prints what it saw as Markdown, for the docs. It "
        "looks first for what it needs, and says what is missing. Where there is one GPU, two "
        "ranks share it and meet in barriers: NCCL wants a GPU for each. No run of the launcher "
        f"lasts longer than {longest:.0f} minutes, and most take seconds.",
        epilog="Exit status: 0 if all went as the docs say, 1 if not, 2 if nothing could be run.",
    )
    add = parser.add_argument
    add("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; all")
    add("--python", metavar="PATH", help="the ranks' Python, with jax[cuda12] (.venv/bin/python)")
    add("--out", default="gpu-check", metavar="FOLDER", help="for whole outputs and result.json")
    add("--gpus", type=_number, metavar="N", help="use the first N of the visible GPUs; all")
    add("--cpu", action="store_true", help="rehearse on CPU devices (two, or --gpus of them)")
    return parser
