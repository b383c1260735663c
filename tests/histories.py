"""Build the ends of ranks, and of whole runs, from short descriptions."""

import signal
from pathlib import Path
from typing import Any

from records import failure, rank_run

from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.wire.hook_messages import Failed, Raised

ABORTED = "F1 client.h:80] Terminating process because the JAX distributed service detected fatal"


def end(
    rank: int, order: int, status: int | None, sent: tuple[int, ...] = (), **more: Any
) -> RankRun:
    return rank_run(rank, status, sent, order=order, **more)


TERM, KILL, ABRT = signal.SIGTERM, signal.SIGKILL, signal.SIGABRT

RESET = (
    "ValueError: UNKNOWN: Gloo AllGather failed: Read error [127.0.0.1]:1: Connection reset by peer"
)
REFUSED = failure("ConnectionRefusedError: Connection refused")
LOST_PEER = failure("JaxRuntimeError: Connection closed by peer")
#: Of two ranks, in what order each ends and how: (ends, who is the cause, exit status)
HISTORIES: dict[str, tuple[list[RankRun], int | None, int]] = {
    "all well": ([end(0, 1, 0), end(1, 2, 0)], None, 0),
    "one exits": ([end(0, 2, -TERM, (TERM,)), end(1, 1, 3)], 1, 3),
    "our own signal comes first": ([end(0, 1, -TERM, (TERM,)), end(1, 2, 3)], 1, 3),
    "one is killed": ([end(0, 2, -KILL, (TERM, KILL)), end(1, 1, -KILL)], 1, 137),
    "killed although told to end": ([end(0, 1, 3), end(1, 2, -KILL, (TERM,))], 0, 3),
    "an exception that JAX holds up": ([end(0, 2, -KILL, (TERM, KILL)), end(1, 1, -KILL, (KILL,), failure=failure())], 1, 1),
    "rank 0 dies and a victim is read first": ([end(0, 2, -KILL, (TERM,)), end(1, 1, -ABRT, stderr=f"x\n{ABORTED} errors\n")], 0, 137),
    "a victim's exception is told first": ([end(0, 1, -KILL, (KILL,), failure=LOST_PEER), end(1, 2, 7)], 1, 7),
    "a victim's exception of another class": ([end(0, 1, -KILL, (KILL,), failure=failure(RESET)), end(1, 2, -KILL, (TERM,))], 1, 137),
    "a program's own connection error": ([end(0, 1, -KILL, (KILL,), failure=REFUSED), end(1, 2, 3, (TERM,))], 0, 1),
    "its own way to end on our signal, where only victims fail": (
        [end(0, 1, -ABRT, stderr=f"x\n{ABORTED} errors\n"), end(1, 2, 3, (TERM,), after_signal=True)], 0, 134,
    ),
    "only victims": ([end(0, 2, -ABRT, stderr=ABORTED), end(1, 1, -ABRT, stderr=ABORTED)], 1, 134),
    "an exception before initialize() counts when the process ends": (
        [end(0, 2, -TERM, (TERM,)), end(1, 1, 1, failure=failure(joined=False))], 1, 1,
    ),
}  # fmt: skip

GLOO = "JaxRuntimeError: UNKNOWN: Gloo AllReduce failed: Connection closed by peer [::1]:5"
#: What is raised where the callback of a program has failed with this.
CALLBACK = (
    "jax.errors.JaxRuntimeError: INTERNAL: CpuCallback error calling callback: Traceback (most recent call last):\n"
    '  File "/me/train.py", line 8, in <module>\n  File "/v/site-packages/jax/_src/callback.py", line 72, in __call__\n'
    '  File "/me/train.py", line 6, in check\n{}\n--------------------\nFor simplicity, JAX has removed its internal frames'
)


def group(*inside: str) -> Failed:
    """A group of exceptions that has ended a program."""
    causes = tuple(raised(summary, inside=True) for summary in inside)
    count = f"{len(inside)} sub-exception" + "s" * (len(inside) > 1)
    summary = f"ExceptionGroup: some tasks failed ({count})"
    return failure(
        summary, causes=causes, traceback=f"  + Exception Group Traceback\n  | {summary}\n"
    )


def raised(summary: str, *, inside: bool = False) -> Raised:
    return Raised(summary.partition(":")[0], summary, inside=inside)


def leaves(words: str, handled: str = "") -> Failed:
    """A program's sys.exit() with words, maybe while it handles an exception."""
    inside = raised(handled) if handled else None
    return Failed(1, joined=True, exited=True, summary=words, handled=inside)


_OWN, _LOST = Verdict.FAILED, Verdict.VICTIM
#: Of a rank, after another one was killed: (what its hook reports, whether it has joined, verdict)
REPORTS: dict[str, tuple[Failed, bool, Verdict]] = {
    "an exception": (failure(), True, _OWN),
    "the loss of a peer": (failure(GLOO), True, _LOST),
    "a loss that has several lines": (failure("JaxRuntimeError: INTERNAL: step 3\nsee Gloo: Socket closed"), True, _LOST),
    "initialize() gives up": (failure("JaxRuntimeError: DEADLINE_EXCEEDED: no answer"), False, _LOST),
    "a later deadline": (failure("JaxRuntimeError: DEADLINE_EXCEEDED: no answer"), True, _OWN),
    "a backend gives up": (failure("RuntimeError: Unable to initialize backend: GetKeyValue() timed out with key: cuda:global_topology/cuda and"), True, _LOST),
    "a group": (group(GLOO), True, _LOST),
    "a group with an error of its own": (group(GLOO, "KeyError: 3"), True, _OWN),
    "a callback": (failure(CALLBACK.format("ConnectionError: Connection refused"), exception="JaxRuntimeError"), True, _OWN),
    "a callback that has lost a peer": (failure(CALLBACK.format(f"jax.errors.{GLOO}"), exception="JaxRuntimeError"), True, _LOST),
    "a group of two losses": (group(GLOO, GLOO), True, _LOST),
    "words": (leaves("no data"), True, _OWN),
    "words about the loss of a peer": (leaves("the step failed", GLOO), True, _LOST),
    "words about an error of its own": (leaves("the step failed", "KeyError: 3"), True, _OWN),
}  # fmt: skip


def read_streams() -> dict[str, list[tuple[str, str | None]]]:
    """Lines of the ranks' streams, by a name for each, and what kind of noise each is, if any."""
    streams: dict[str, list[tuple[str, str | None]]] = {}
    for row in Path(__file__).with_name("jax_output.txt").read_text().splitlines():
        if row.startswith("== "):
            lines = streams[row[3:]] = []
        else:
            kind, _, line = row.partition("|")
            noise = None if kind.startswith("shown") else kind.strip()
            lines.append((line[1:].replace("\\x20", " "), noise))
    return streams


#: What ranks of real jobs have printed.
STREAMS = read_streams()
