"""Checks of memory: that of GPUs, and what NCCL shares between processes of a host."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from gpu_check.check import Check, NotRun, Seen
from gpu_check.limited import ask
from gpu_check.machine import NOTHING, Machine, Ran
from gpu_check.probes import driver

# After the first line of the allocator that does not get its memory.
_TOLD_S = 60.0
_NEARLY_ALL = ("-x", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.9")
_SHM = Path("/dev/shm")
_MOST_TO_FILL = 16 << 30
_LEFT_FREE = 1 << 20
_SMALL_SHM = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
_UNSHARE = ("unshare", "--mount", "sh", "-c")
# NCCL's way through /dev/shm, which it needs where GPUs do not reach one another.
_THROUGH_SHM = ("-x", "NCCL_P2P_DISABLE=1", "-x", "NCCL_CUMEM_HOST_ENABLE=0")


def shared(machine: Machine) -> Seen:
    """Ranks that share a card: with JAX's default share each, then with the launcher's."""
    default = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.75"
    job = machine.sharing("memory-default", "memory", "-x", default)
    with machine.running(job) as running:
        after = running.wait_for("found no memory: of GPU", _TOLD_S)
        running.signal(signal.SIGINT)  # the allocator would retry for 100 s
        alone = running.finish()
    fit = machine.run(machine.sharing("memory-shared", "memory"))
    holders = f"{alone.first('found no memory')}, {after or 0.0:.0f} s after the start"
    line = fit.first("2 ranks share", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.375")
    well = fit.status == 0 and len(fit.of_ranks("holds")) == 2 and line != NOTHING
    return Seen(
        well and after is not None,
        f"JAX's default: {holders}; {line}: {fit.ended}, {_held(fit)}",
    )


def used_up(machine: Machine) -> Seen:
    """Let a rank take more than its card has: the summary names the holders."""
    report = machine.out / "used-up.json"
    ran = machine.run(machine.alone("used-up", "too-much", "--report", report))
    line = ran.first("found no memory: of GPU")
    seen = f"{line}; {ran.first('hint: out of memory')}; {ran.ended}"
    return Seen(ran.status == 1 and line != NOTHING, seen)


def back_after_kill(machine: Machine) -> Seen:
    """Check that after SIGKILL of a rank with most of a GPU's memory, the next job gets it."""
    before = _used()
    killed = machine.run(machine.alone("kill-holding", "lost", *_NEARLY_ALL))
    between = _used()
    after = machine.run(machine.alone("kill-after", "memory", *_NEARLY_ALL))
    seen = f"{_held(killed)}, {killed.first('rank 0')}; next job: {_held(after)}, {after.ended}"
    used = f"; in use before, between, after: {before}, {between}, {_used()} MiB"
    well = killed.says("killed by SIGKILL") and after.status == 0 and bool(after.of_ranks("holds"))
    return Seen(well, seen + (used if before else ""))


def shm_full(machine: Machine) -> Seen:
    """/dev/shm has no room: the job works without it, or the summary says what is too small."""
    with _no_room() as (words, how):
        job = machine.together("shm", "steps", *_THROUGH_SHM)
        ran = machine.run(dataclasses.replace(job, before=words))
    hint = ran.first("/dev/shm")
    well = ran.status == 0 or "is too small" in hint
    how += "" if machine.several else ", and no NCCL to miss it"
    return Seen(well, f"{how}: {ran.ended}{'' if ran.status == 0 else f', {hint}'}")


@contextlib.contextmanager
def _no_room() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield words that run a command with a full /dev/shm, and how that was done.

    Raises:
        NotRun: it cannot be done here.

    """
    if os.geteuid() == 0 and shutil.which("unshare"):
        tried = ask([*_UNSHARE, _SMALL_SHM, "sh", "true"], 10)
        if tried.status == 0:  # containers may forbid it
            yield (*_UNSHARE, _SMALL_SHM, "sh"), "one of 1 MiB in a mount namespace"
            return
    if not _SHM.is_dir():
        raise NotRun("there is no /dev/shm")
    free = shutil.disk_usage(_SHM).free
    if not _LEFT_FREE < free <= _MOST_TO_FILL or free > _memory_available() // 2:
        raise NotRun(
            f"/dev/shm has {free >> 20} MiB free, too much to fill beside other programs, and a "
            "smaller one needs root and unshare"
        )
    file = _SHM / f"gpu-check-{os.getpid()}"
    try:
        _fill(file, free - _LEFT_FREE)
        yield (), f"filled but for {_LEFT_FREE >> 20} MiB"
    finally:
        file.unlink(missing_ok=True)


def _fill(file: Path, size: int) -> None:
    try:
        with file.open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, size)
    except OSError as error:
        raise NotRun(f"/dev/shm cannot be filled: {error.strerror}") from error


def _memory_available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable")), "0")
    return int(found) * 1024


def _held(ran: Ran) -> str:
    return "; ".join(ran.of_ranks("holds")) or "nobody held anything"


def _used() -> str:
    """MiB in use on each card, as the driver counts; "" where it cannot be asked."""
    return "+".join(str(card.used_mib) for card in driver().cards)


_NO_LIMIT = "memory of CPU devices has no limit of its own"
MEMORY = {
    "memory": Check(
        "two ranks on one card: each gets its part; with JAX's default the holder is named",
        shared,
        real=_NO_LIMIT,
    ),
    "used-up": Check(
        "a rank takes more than its card has: the summary says who holds it",
        used_up,
        real=_NO_LIMIT,
    ),
    "kill": Check(
        "a rank is killed that holds most of a card; the next job gets it all",
        back_after_kill,
        real=_NO_LIMIT,
    ),
    "shm": Check("`/dev/shm` is full: the job works, or the hint names it", shm_full),
}
