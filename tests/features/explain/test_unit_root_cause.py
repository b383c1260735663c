"""From what happened to the root cause, in words."""

import signal

import pytest
from histories import HISTORIES, KILL, RESET, TERM, end
from records import end_of, failure, rank_run

from mcjax_launch.features.explain.causes import quote_last_lines
from mcjax_launch.journal.ending import find_first_failure
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import summarize, summarize_failed_start
from mcjax_launch.journal.words import describe_exit_status, format_duration
from mcjax_launch.wire.hook_messages import Raised

CAUGHT = "W1122 09:12:42.789719   14260 preemption_notifier.cc:90] SIGTERM caught at 2026-11-22"

JAX_OPERATION = "JaxStackTraceBeforeTransformation"


@pytest.mark.parametrize("name", HISTORIES)
def test_root_cause_and_status_are_found(name: str) -> None:
    ends, cause, status = HISTORIES[name]
    found = find_first_failure(ends)
    assert (found.process_id if found else None) == cause
    summary = summarize(RunState(ranks={e.process_id: e for e in ends}))
    assert summary.status == status
    assert bool(summary.lines) == (status != 0)


@pytest.mark.parametrize(("status", "cause"), [(-KILL, 1), (3, 0)])
def test_rank_killed_before_our_signal_is_the_cause(status: int, cause: int) -> None:
    """Its victim's exception was read first; no program ends itself by SIGKILL for a SIGTERM."""
    state = RunState({0: end(0, 1, -KILL, (KILL,), failure=failure(RESET)), 1: rank_run(1, None)})
    state.on_exited(end_of(1, status, (TERM,)), 2.0)
    found = find_first_failure(state.ranks.values())
    assert found is not None and found.process_id == cause


def test_reason_to_stop_counts_rather_than_its_consequences() -> None:
    ranks = {0: end(0, 2, 5, (signal.SIGINT,))}
    assert summarize(RunState(ranks, stop=StopReason("stopped by SIGINT", 130))).status == 130
    assert summarize(RunState(ranks)).status == 5


def test_unstartable_program_is_not_restarted() -> None:
    failed = {0: end(0, 1, 5)}
    assert not summarize(RunState(failed)).final
    assert summarize(RunState(failed), final=True).final
    assert summarize(RunState({0: end(0, 1, 0)})).final
    assert not summarize_failed_start("host a: no answer", 255).final
    assert summarize_failed_start("no such file", 127).final


def test_summary_lists_all_failures_in_order() -> None:
    ranks = {
        0: end(0, 2, -KILL, (TERM, KILL)),
        1: end(1, 1, -KILL, (KILL,), failure=failure()),
        2: end(2, 3, -TERM, (TERM,)),
        3: end(3, 4, -KILL, (TERM, KILL)),
    }
    assert summarize(RunState(ranks, log_dir="/logs")).lines == (
        "rank 1 failed: ValueError: x",
        "at train.py:3 in step: boom()",
        "  | Traceback ...",
        "  | ValueError: x",
        "the 3 other ranks: 2 killed (still running after SIGTERM), 1 ended by SIGTERM",
        "logs: /logs",
    )


@pytest.mark.parametrize("is_python", [True, False])
def test_crashed_python_gets_a_hint_on_faulthandler(is_python: bool) -> None:
    run = end(0, 1, -signal.SIGSEGV)
    run.process.hooked = is_python
    summary = summarize(RunState({0: run}))
    assert ("PYTHONFAULTHANDLER" in "".join(summary.lines)) is is_python


# Where an operation was traced, and what of it is said besides the line that failed.
OPERATIONS = {
    "train.py:3 in step": [],
    "/lib/python3.13/site-packages/jax/_src/numpy.py:2 in matmul": [],
    "model.py:7 in loss": ["in the operation at model.py:7 in loss: x @ w"],
}


@pytest.mark.parametrize("where", OPERATIONS)
def test_operation_named_by_jax_is_not_repeated(where: str) -> None:
    cause = Raised(JAX_OPERATION, f"jax.{JAX_OPERATION}: ValueError: x", where, "x @ w")
    run = end(0, 1, 1, failure=failure(causes=(cause,)))
    lines = summarize(RunState({0: run})).lines
    assert list(lines[2:-2]) == OPERATIONS[where], lines


@pytest.mark.parametrize(
    ("stderr", "said_before"),
    [
        ("Traceback ...\nValueError: x\n", True),
        ("Traceback ...\nValueError: x\n" + "more\n" * 500, False),
        ("something else\n", False),
    ],
)
def test_error_just_printed_by_the_rank_is_not_quoted(stderr: str, said_before: bool) -> None:
    run = end(0, 1, 1, failure=failure())
    run.stderr = stderr
    summary = summarize(RunState({0: run}), seconds=3.21)
    quote = ("  | Traceback ...", "  | ValueError: x")
    first = summary.lines[:2]
    assert summary.lines == (*first, *quote, "the job ran for 3.2 s")
    rest = (*(() if said_before else quote), "the job ran for 3.2 s")
    assert summary.without_quote == (*first, *rest)


def test_durations_are_rounded() -> None:
    words = {0.00087: "less than 0.1 s", 0.0951: "0.095 s", 9.44: "9.4 s", 9.96: "10 s"}
    words |= {59.6: "60 s", 61: "1 min 1 s", 3600: "1 h 0 min", 90000: "25 h 0 min"}
    assert {seconds: format_duration(seconds) for seconds in words} == words


def test_summary_without_a_reader_is_one_line() -> None:
    stop = StopReason("stopped: the reader of stdout is gone", 141, unread=True)
    summary = summarize(RunState({0: end(0, 1, -TERM, (TERM,))}, stop=stop), seconds=1.0)
    assert (summary.lines, summary.status) == ((stop.message,), 141)


def test_last_words_of_a_rank_are_extracted() -> None:
    hidden = "  (1 JAX log line hidden)"
    lines = {"": [], CAUGHT: [f"  | {CAUGHT}"], f"{CAUGHT}\n{CAUGHT}": [f"  | {CAUGHT}", hidden]}
    lines[f"mine\n{CAUGHT}"] = ["  | mine", hidden]
    assert {said: quote_last_lines(rank_run(0, 1, stderr=said))[1:] for said in lines} == lines
    assert quote_last_lines(end(0, 1, 3, failure=failure(), stderr=CAUGHT)) == []


def test_a_python_without_jax_gets_advice() -> None:
    summary = "ModuleNotFoundError: No module named 'jax'"
    told = failure(summary, joined=False, module="jax", python="/usr/bin/python3")
    lines = summarize(RunState({0: end(0, 1, 1, failure=told)})).lines
    assert "the ranks' Python, /usr/bin/python3, has no jax" in lines[-1]


def test_exit_status_is_worded() -> None:
    words = {3: "exit status 3", -11: "killed by SIGSEGV (segmentation fault)"}
    words |= {-40: "killed by signal 40"}
    assert {status: describe_exit_status(status) for status in words} == words


@pytest.mark.parametrize(("order", "status"), [(1, 255), (3, 7)])
def test_status_after_surviving_a_host_loss_is_that_of_the_first_failure(
    order: int, status: int
) -> None:
    """The first failure's status counts, and a lost host is one."""
    lost = StopReason("host b: gone", 255)
    state = RunState(survives=True, host_lost=lost)
    gone = rank_run(1, None, (), order=order)
    gone.process.lost = True
    state.ranks = {0: end(0, 2, 7), 1: gone, 2: end(2, 4, 0)}
    assert summarize(state).status == status
