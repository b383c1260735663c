"""Facts of a run that the launcher itself adds to the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcjax_launch.wire.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcjax_launch.wire.messages import Bye


# --- the life of a job ---


class JobBegan(Value):
    """The job begins.

    Args:
        job_id: id of the first attempt.
        program: PROGRAM and its arguments.
        ranks: number of ranks in the whole job; None if it could not begin.
        hosts: names of the hosts that get ranks of this launcher.

    """

    job_id: str
    program: Sequence[str]
    ranks: int | None
    hosts: Sequence[str]


class Restarted(Value):
    """Another attempt begins: the `count`-th restart of the job, on these hosts."""

    count: int
    job_id: str
    hosts: Sequence[str]


class Planned(Value):
    """The hosts of the ranks are known.

    Args:
        job_id: id of the attempt.
        coordinator: address of JAX's coordinator.
        places: the host of each rank, by number.
        log_dir: folder of all log files; None if there are none.

    """

    job_id: str
    coordinator: str
    places: Mapping[int, str]
    log_dir: str | None = None


class HostGone(Value):
    """The agent of a host has said its last words, and has left nothing behind there."""

    host: str
    bye: Bye


class RanksLost(Value):
    """Ranks were lost with their host: how they have ended is unknown."""

    ranks: Sequence[int]


class Resumed(Value):
    """The launcher runs again, after it was stopped."""


# --- the ranks ---


class ImportBegan(Value):
    """A host imports a module for its ranks."""

    host: str
    module: str


class ProgramsCounted(Value):
    """A rank has begun `total` programs over several processes."""

    rank: int
    total: int


class ProgramObtained(Value):
    """A rank has obtained a program.

    Args:
        rank: number of the rank.
        is_loaded: True if another rank or an earlier run had compiled the program.
        seconds: time that it took to compile, or that the loading has saved.

    """

    rank: int
    is_loaded: bool
    seconds: float


class AwaitsCompilation(Value):
    """A rank waits for the rank that compiles the same program; -1: it waits no more."""

    rank: int
    other: int


class DebuggingBegan(Value):
    """The user debugs a rank: no limit counts this time."""


class DebuggingEnded(Value):
    """The user debugs no rank any more."""


class CallsChanged(Value):
    """The ranks of a session begin or end a call; if `is_idle`, they wait for the next one."""

    is_idle: bool


# --- what explains others ---


class MemoryExhausted(Value):
    """A rank has found no memory on a GPU."""

    rank: int


class GpuMemoryKnown(Value):
    """The holders of the GPU's memory are known, after a rank has found none."""


class ProgramsDiffer(Value):
    """Ranks have run programs in another order."""


# --- what is told ---


class Said(Value):
    """A line, or several, of the launcher.

    Args:
        text: the lines, without the prefix.
        level: "say", "note" (not shown with -q), "detail" (shown with -v), "summary", or "alarm",
            which is the summary of a failure.

    """

    text: str
    level: str


class OutputEnded(Value):
    """The output of an attempt has come whole: unfinished lines end here."""


class StacksShown(Value):
    """The stacks of all ranks are shown, and what is known about ranks that wait."""

    lines: Sequence[str]
    known: Sequence[str] = ()


class GpusUsed(Value):
    """Notice that it is time to report a rank's use of its GPUs."""

    rank: int


class CountsDue(Value):
    """Notice that it is time to report the numbers of programs that ranks have run."""


class Finding(Value):
    """A fact that explains something about the job.

    Args:
        words: description in one line, with the place; "" if there is only advice.
        ranks: the ranks responsible, the rank to blame first; empty if all are.
        cure: advice to the user; "" if there is none.
        since: start of a lasting condition, in time.monotonic's seconds; None if there is none.
        is_certain: True if the job can never go on, so that the launcher ends it.
        is_urgent: True to print the finding with --quiet too.

    """

    words: str
    ranks: tuple[int, ...] = ()
    cure: str = ""
    since: float | None = None
    is_certain: bool = False
    is_urgent: bool = False

    @property
    def hint(self) -> str:
        """The cure as a line `hint: ...`; "" if there is none."""
        return f"hint: {self.cure}" if self.cure else ""


class Stack(Value):
    """The stacks of one process of a rank.

    Args:
        rank: number of the rank.
        host: name of the rank's host.
        pid: id of the process on its host.
        text: faulthandler's dump; "" if the process has no hook.
        state: the kernel's information on the process, in words, if `text` is "".
        helper: True if another process of the rank takes part in the job instead.
        importing: True for the import server, which is not a rank yet.
        others: dump of other threads that run the user's code; not shown to the user.

    """

    rank: int
    host: str
    pid: int
    text: str
    state: str = ""
    helper: bool = False
    importing: bool = False
    others: str = ""
