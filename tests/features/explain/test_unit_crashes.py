"""What is said of a process that has crashed: the line with which it has explained its end."""

import signal

import pytest
from histories import ABORTED, end
from records import failure

from mcjax_launch.features.explain.jax_messages.crashes import find_crash_words
from mcjax_launch.features.explain.snapshots import find_crash_frame
from mcjax_launch.journal.words import describe_rank_end, describe_rank_failure, extract_headline

ABRT, ILL = -signal.SIGABRT, -signal.SIGILL
CHECK = "F1126 12:00:00.123456   4711 reader.cc:88] Check failed: a == b (7 vs. 9) x.arecord\n"
STACK = "*** Check failure stack trace: ***\n    @     0x7f0000000000  reader::Open()\n"
DUMP = (
    'Current thread 0x00007f1832bf0c40 (most recent call first):\n  File "/me/t.py", line 12 in f\n'
    '  File "/me/t.py", line 20 in <module>\n\nExtension modules: numpy._core (total: 1)\n'
)
WORDS = {
    "absl": (CHECK + STACK, ABRT, "Check failed: a == b (7 vs. 9) x.arecord (reader.cc:88)"),
    "absl, in a shell": (CHECK + STACK, 134, "Check failed: a == b (7 vs. 9) x.arecord (reader.cc:88)"),
    "absl, with faulthandler": (f"{CHECK}{STACK}Fatal Python error: Aborted\n\n{DUMP}", ABRT, "Check failed: a == b (7 vs. 9) x.arecord (reader.cc:88)"),
    "TensorFlow": ("2026-11-26 12:00:00.123456: F tsl/env.cc:8] no room\n", ABRT, "no room (tsl/env.cc:8)"),
    "what": ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad record\n", ABRT, "std::runtime_error: bad record"),
    "no what": ("terminate called without an active exception\n", ABRT, "terminate called without an active exception"),
    "libc++": ("libc++abi: terminating due to uncaught exception of type std::bad_cast: no\n", ABRT, "libc++abi: terminating due to uncaught exception of type std::bad_cast: no"),
    "assert": ("read: r.cpp:8: void R::open(): Assertion `m == k' failed.\nAborted\n", ABRT, "read: r.cpp:8: void R::open(): Assertion `m == k' failed."),
    "glibc": ("double free or corruption (out)\n", ABRT, "double free or corruption (out)"),
    "stack": ("*** stack smashing detected ***: terminated\n", ABRT, "*** stack smashing detected ***: terminated"),
    "Rust": ("thread 'main' panicked at src/lib.rs:3:5:\nno shard\nnote: run with\n", ABRT, "thread 'main' panicked at src/lib.rs:3:5: no shard"),
    "LLVM": ("LLVM ERROR: out of memory\n", ABRT, "LLVM ERROR: out of memory"),
    "Python": (f"Fatal Python error: GC object already tracked\nPython runtime state: initialized\n\n{DUMP}", ABRT, "Fatal Python error: GC object already tracked"),
    "only a signal": (f"Fatal Python error: Illegal instruction\n\n{DUMP}", ILL, ""),
    "time limit, long before": (f"Timeout (0:00:09)!\n{DUMP}", 1, ""),
    "time limit": (f"Timeout (0:00:09)!\n{DUMP[: DUMP.index('Ext')].rstrip()}\n", 1, "faulthandler's time limit of 0:00:09 (dump_traceback_later)"),
    "another exit": (CHECK, 1, ""),
    "killed": (CHECK, -signal.SIGKILL, ""),
    "JAX's own": (f"F1126 12:00:00.123456   4711 {ABORTED[3:]} errors\n", ABRT, ""),
    "a warning": ("W1126 12:00:00.123456   4711 reader.cc:88] slow\n", ABRT, ""),
    "nothing": ("", ABRT, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_line_that_explains_a_crash_is_found(name: str) -> None:
    text, status, words = WORDS[name]
    assert find_crash_words(f"loading\n{text}", status) == words


def test_crash_is_described_with_its_line() -> None:
    rank = end(1, 1, ABRT, stderr=CHECK + STACK)
    words = "killed by SIGABRT: Check failed: a == b (7 vs. 9) x.arecord (reader.cc:88)"
    assert describe_rank_failure(rank) == words
    assert describe_rank_end(rank) == words
    assert describe_rank_failure(end(1, 1, 134, stderr=CHECK)).startswith(
        "exit status 134, a shell's for SIGABRT: Check failed"
    )
    assert describe_rank_failure(end(1, 1, 139)).endswith("for SIGSEGV (segmentation fault)")
    assert describe_rank_failure(end(1, 1, ILL)) == (
        "killed by SIGILL (illegal instruction; was its code built for another processor?)"
    )


@pytest.mark.parametrize(
    ("head", "line"),
    [("Fatal Python error: Illegal instruction\n\n", "12"), ("Timeout (0:00:09)!\n", "20")],
)
def test_line_of_a_crash_is_in_the_programs_own_dump(head: str, line: str) -> None:
    other = (
        'Thread 0x00007f1832bf0c41 (most recent call first):\n  File "/me/t.py", line 3 in g\n\n'
    )
    main = DUMP if head[0] == "F" else DUMP.replace("Current thread", "Thread").replace("12", "20")
    frame = find_crash_frame(end(1, 1, ILL, stderr=head + other + main))
    assert frame is not None and frame.line == line
    assert find_crash_frame(end(1, 1, ILL, stderr="nothing")) is None


PYDANTIC = (
    "pydantic_core._pydantic_core.ValidationError: 2 validation errors for TrainConfig\nrate\n"
    "  Field required [type=missing]\n    For further information visit https://x\nwarmup\n  Input"
)


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (PYDANTIC, ": 2 validation errors for TrainConfig: rate: Field required [type=missing]"),
        ("ValidationError: 1 validation error for C\n\na\nb", "ValidationError: 1 validation error for C: a"),
        ("ValidationError: multiple errors", "ValidationError: multiple errors"),
        ("ValidationError: 3 bad rows\nmore", "ValidationError: 3 bad rows"),
    ],
)  # fmt: skip
def test_first_error_follows_a_line_that_only_counts_errors(summary: str, line: str) -> None:
    assert extract_headline(failure(summary, exception="ValidationError")).endswith(line)
