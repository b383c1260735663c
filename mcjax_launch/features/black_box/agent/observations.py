"""Observations of this host's processes: from the kernel, and from installed tools."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time

from ....kernel.agent.system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import IO

#: Text in place of stacks if a tool has not reached them in time.
NOTHING = "no stacks in time: gdb needs 7 s of a core for each JAX process, py-spy less"
_MOST_TEXT = 1 << 20
_TOUCH_S = 2.0
_MOST_THREADS = 512
_MOST_NATIVE = 64
# Lines of the kernel's log to keep.
_TELLING = re.compile(r"out of memory|\boom\b|oom[-_]|killed process|\bxid\b|nvrm", re.I)
_MOST_LINES = 200
_SHOWN = ("State", "Threads", "VmPeak", "VmRSS", "VmSwap", "SigPnd", "SigBlk", "SigCgt")


def collect_files(
    ranks: Mapping[int, int], most_s: float, keep_in_touch: Callable[[], None]
) -> Iterator[tuple[str, str]]:
    """Yield collected files as pairs of name and text, without empty files.

    Args:
        ranks: rank of each process, by pid.
        most_s: seconds for all tools together.
        keep_in_touch: called repeatedly while the tools work.

    """
    until = time.monotonic() + most_s
    below = [pid for pid in system.list_descendants() if pid not in ranks]
    named = {**{pid: f"rank {rank}, " for pid, rank in ranks.items()}, **dict.fromkeys(below, "")}
    tools = list(_start_tools(named))
    yield "processes.txt", "\n".join(_describe_processes(ranks, below))
    for name, heading, process, out in tools:
        while process.poll() is None and time.monotonic() < until:
            keep_in_touch()
            _wait(process, min(_TOUCH_S, until - time.monotonic()))
        in_time = process.poll() is not None
        text = _read_output(process, out)
        if name.startswith("native."):  # gdb first prints what it loads
            begin = text.find("\nThread ")
            if begin >= 0:
                text = text[begin:]
            elif not in_time:
                text = NOTHING
        if name == "dmesg.txt":
            lines = [line for line in text.splitlines() if _TELLING.search(line)]
            text = "\n".join(lines[-_MOST_LINES:])
        if text:
            yield name, f"{heading}{text[:_MOST_TEXT]}"


def _start_tools(
    named: Mapping[int, str],
) -> Iterator[tuple[str, str, subprocess.Popen[bytes], IO[bytes]]]:
    """Start the tools that this host has, all at once; yield name, heading, process and output."""
    if spy := shutil.which("py-spy"):
        natively = [spy, "dump", "--native", "--pid"]
    elif gdb := shutil.which("gdb"):
        natively = [gdb, "-batch", "-nx", "-ex", "thread apply all backtrace", "-p"]
    else:
        natively = []
    # A zombie has no command line.
    alive = [pid for pid in named if _read_file(f"/proc/{pid}/cmdline")]
    commands = [
        (f"native.{pid}.txt", f"{named[pid]}pid {pid}\n", [*natively, str(pid)])
        for pid in (alive[:_MOST_NATIVE] if natively else ())
    ]
    commands += [
        ("dmesg.txt", "", ["dmesg", "--ctime"]),
        ("nvidia-smi.txt", "", ["nvidia-smi", "-q"]),
        ("ncclras.txt", "", ["ncclras", "-v"]),
    ]
    for name, heading, command in commands:
        out = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        except OSError:  # the tool is not installed
            out.close()
            continue
        yield name, heading, process, out


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(seconds, 0.0))


def _read_output(process: subprocess.Popen[bytes], out: IO[bytes]) -> str:
    """Return a tool's output; kill the tool if it still runs."""
    if process.poll() is None:
        process.kill()  # not waited for: a tool that waits for a driver does not even die
    with out:
        out.seek(0)
        return out.read(_MOST_TEXT).decode("utf-8", "replace")


def _describe_processes(ranks: Mapping[int, int], below: Iterable[int]) -> Iterator[str]:
    """Describe the ranks and their child processes, each with its threads."""
    for pid, rank in sorted(ranks.items(), key=lambda known: known[1]):
        yield from _describe_process(pid, f"rank {rank}, pid {pid}")
    for pid in below:
        yield from _describe_process(pid, f"pid {pid}")


def _describe_process(pid: int, title: str) -> Iterator[str]:
    yield f"{title}: {system.describe(pid)}"
    if command := system.read_command(pid):
        yield f"    {' '.join(command)[:300]}"
    status = dict(
        line.partition(":")[::2] for line in _read_file(f"/proc/{pid}/status").splitlines()
    )
    known = (f"{name} {' '.join(status[name].split())}" for name in _SHOWN if name in status)
    yield f"    {', '.join(known)}"
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        threads = []
    for thread in threads[:_MOST_THREADS]:
        at = f"/proc/{pid}/task/{thread}"
        place = (
            _read_file(f"{at}/wchan") or f"syscall {_read_file(f'{at}/syscall').partition(' ')[0]}"
        )
        state = _read_file(f"{at}/stat").rpartition(")")[2].strip()[:1]
        yield f"    thread {thread} {_read_file(f'{at}/comm').strip()}: {state} {place}"
    yield ""


def _read_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return ""
