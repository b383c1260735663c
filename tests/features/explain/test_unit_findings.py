"""What is said of what happens, and when: rows of a history, a moment, and the words.

A row's moment is one of: a note while the job runs, the end of a job that can never go on, a limit
that is reached, and the first line of the summary.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from records import end_of, failure
from told import Event, Launched, Told, call, calls, ends, fails, join, launch, said

from mcjax_launch.features.explain import rules
from mcjax_launch.features.explain.jax_messages.lost_peer import find_missing_key
from mcjax_launch.features.explain.rules import RULES, Rule
from mcjax_launch.features.explain.view import Moment, View
from mcjax_launch.features.recorder.sequences import ProgramName, ProgramSequences
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import DevicesAsked, Verdict
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import describe_rank_end
from mcjax_launch.wire.hook_messages import (
    AtBarrier,
    Backend,
    CalledBelow,
    CollectedTests,
    Compiling,
    Crashed,
    FailedTest,
    Handling,
    ImportedJax,
    Joined,
    Joining,
    Leaving,
    Left,
    NotJoined,
    ProcessNumber,
    Raised,
    UnhandledError,
)
from mcjax_launch.wire.messages import FromHook

ABRT = -signal.SIGABRT
FATAL = (
    "F1120 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died. absl::Status: "
)

# --- notes, and the end of what can never go on ---

OWN = "\nhint: write jax.distributed.initialize() without arguments: it gets them from the launcher"
OR_NONE = "\nhint: either all ranks call initialize() or none: did this rank take another branch, or did its shell hide a failure?"
GONE = "rank 1 exited with 0 without calling initialize(), but"
LATER = f"{GONE} others wait for it; the job ends when all of them do"
NOW = f"{GONE} ranks 0,2 wait for it{OR_NONE}"
REFUSED = NotJoined("RuntimeError", "too late")
WITHOUT = "rank 1 exited with 0 after its call of initialize() had failed, but"
WHY = "\nhint: initialize() failed with RuntimeError: too late"
AT = "called initialize() at t.py:3 with"
MANY = f"rank 0 {AT} num_processes=4, but the job has 3"
WITH = "called initialize() with"
TWICE = f"rank 2 {WITH} process_id=0, the same as rank 0; its own is 2{OWN}"
DESERTED = "rank 1 finished without reaching the barrier 'save', where rank 0 waits at t.py:9\nhint: all ranks must reach a barrier, or none"
LEFT = "rank 1 exited with 0 without leaving the job (as os._exit() does), so JAX considers it dead"
NEEDED = ": all processes of a job need the same"
LATE = NotJoined(
    "RuntimeError", "initialize() must be called before any JAX calls that ...", "t.py:2"
)
LONE = "these are 3 separate single-process jobs: initialize() at t.py:3 failed in all 3 ranks because t.py:2 had already started a backend: call initialize() before that line"
APART = "no rank has called jax.distributed.initialize(): these are 3 separate single-process jobs; call it before any other use of JAX"
JIT = Compiling("jit_f", "a.py:1", "cpu")
BELOW = "started a process that called initialize() again at t.py:9; it is not a rank, so the call was skipped: call it in the rank's own process alone"
CPU, GPU, CUDA = Backend("cpu", 1), Backend("gpu", 1), Backend("cuda", 0)
FELL_BACK = Backend("cpu", 1, "cuda: no supported devices found")
SEES_NONE = "do they see any (nvidia-smi, CUDA_VISIBLE_DEVICES, the plugin of their jax)?"
TESTS, OTHER_TESTS = CollectedTests(9, "a", "t.py::test_a"), CollectedTests(1, "b", "t.py::test_b")
ORDERS = (
    "the ranks run different tests, or run them in different orders: 9 tests in ranks 0-1 (first "
    "t.py::test_a), 1 test in rank 2 (first t.py::test_b); all ranks need the same order: give them one "
    "seed, as with --randomly-seed=1, or use -p no:randomly"
)
FOUND_NONE = "cuda: no supported devices found"


def each(
    count: int, *messages: Backend | ImportedJax | Compiling | NotJoined | CollectedTests
) -> list[Event]:
    """All ranks report the same."""
    return [event for rank in range(count) for event in said(rank, *messages)]


def backends(*of_ranks: tuple[int, Backend]) -> list[Event]:
    """Ranks on two hosts, which have joined, start their backends in this order."""
    return [*join(3), *(event for rank, backend in of_ranks for event in said(rank, backend))]


#: What happens, what is said of it, and how a job ends that can never go on.
WHILE_IT_RUNS: dict[str, tuple[Sequence[Event], list[str], str]] = {
    # ranks that never come
    "it ends before the others wait": ([*ends(1), call(0), call(2)], [LATER], NOW),
    "it ends when one waits": ([call(0), *ends(1), call(2)], [LATER], NOW),
    "it ends last": ([call(0), call(2), *ends(1)], [], NOW),
    "another does not wait": ([call(0), *ends(1)], [LATER], ""),
    "two are gone": ([*ends(1), *ends(2), call(0)], [], f"ranks 1-2{GONE[6:]} rank 0 waits for them{OR_NONE}"),
    "two are gone, and the call of the first had failed": ([call(1), *said(1, REFUSED), *ends(1), *ends(2), call(0), 3.0], [], f"ranks 1-2{WITHOUT[6:]} rank 0 waits for them{WHY}"),
    "nobody waits": ([*ends(1), *ends(0), *ends(2)], [], ""),
    "others wait for two only": ([call(0, 2), *ends(1), call(2, 2, of=1)], [], ""),
    "its call failed": ([call(1), *said(1, REFUSED), call(0), call(2), *ends(1), 3.0], [], f"{WITHOUT} ranks 0,2 wait for it{WHY}"),
    "its call failed, and those of others will": ([*calls(3, has_backend=True), *said(1, REFUSED), *ends(1), *said(0, REFUSED), *said(2, REFUSED)], [], ""),
    "its call failed, and another waits": ([call(1), *said(1, REFUSED), *ends(1), call(0), 3.0], [f"{WITHOUT}{LATER[len(GONE):]}"], ""),
    "its second call did not fail": ([call(1), *said(1, REFUSED), call(1), *said(1, Joined(1)), call(0), *said(1, Leaving()), *ends(1)], [], ""),
    "it came": ([call(1), *said(1, Joined(1)), call(0), *said(1, Leaving()), *ends(1)], [], ""),
    "it is the last of all": ([call(1), *said(1, Joined(1)), *ends(0), *ends(2), *ends(1)], [], ""),
    # tests
    "other tests": ([*each(1, TESTS), *said(1, TESTS), *said(2, OTHER_TESTS), *calls(3)], [ORDERS], ""),
    "other tests, collected later": ([*calls(3), *said(0, TESTS), *said(1, TESTS), *said(2, OTHER_TESTS)], [ORDERS], ""),
    "the same tests": ([*calls(3), *each(3, TESTS)], [], ""),
    "other tests of no job": ([*said(0, TESTS), *said(1, OTHER_TESTS)], [], ""),
    # barriers of all ranks
    "one is at a barrier, and another has finished": ([*join(3), *said(0, AtBarrier("save", "t.py:9")), *said(1, Leaving())], [], DESERTED),
    "it has finished before": ([*join(3), *said(1, Leaving()), *ends(1), *said(0, AtBarrier("save", "t.py:9"))], [], DESERTED),
    "all came, and one has finished": ([*join(3), *(e for rank in (1, 0) for e in said(rank, AtBarrier("save"))), *said(1, Leaving())], [], ""),
    "it came once, and is awaited again": ([*join(3), *(e for rank in (1, 0, 0) for e in said(rank, AtBarrier("save", "t.py:9"))), *said(1, Leaving())], [], DESERTED),
    "its wait has failed": ([*join(3), *said(0, AtBarrier("save"), AtBarrier()), *said(1, Leaving())], [], ""),
    "it left without a word": ([call(1), *said(1, Joined(1)), *ends(1)], [LEFT], ""),
    # calls that can never return
    "too many": ([call(0, 4, where="t.py:3")], [], MANY + OWN),
    "too many, at a local address": ([call(0, 4, "localhost:2", where="t.py:3")], [], MANY + OWN),
    "too many, where others may come": ([call(0, 4, "b:2", where="t.py:3"), call(1, 4, "b:2")], [f"{MANY}, which waits for the rest of them (--start-timeout ends such a wait)"], ""),
    "too few, of those that are there": ([call(0, 2), call(1, 2)], [], ""),
    "too few": ([call(0, 2), call(2, 2)], [], f"rank 2 {WITH} process_id=2 and num_processes=2, but the job has 3{OWN}"),
    "one has another number": ([call(0, 2), call(1)], [], f"rank 0 {WITH} num_processes=2, but the job has 3{OWN}"),
    "one process id twice": ([call(0), call(2, of=0)], [], TWICE),
    "one process id twice, its own is the second": ([call(2, of=0), call(0)], [], TWICE),
    "a process id that is too big": ([call(1, of=3)], [], f"rank 1 {WITH} process_id=3, which is not one of 0 to 2{OWN}"),
    "one that is below 0": ([call(1, of=-1)], [], f"rank 1 {WITH} process_id=-1, which is not one of 0 to 2{OWN}"),
    "two jobs": ([call(0, 1), call(2, 1, "b:2", of=0)], [], ""),
    "jobs of one process each": ([call(0, 1), call(1, 1, "h:2", of=0)], [], ""),
    "at one port of a host": ([call(1, 1, of=0), call(2, 1, where="t.py:3", of=0)], [], f"rank 2 {AT} num_processes=1, but the job has 3{OWN}"),
    "one after the other at one port": ([call(1, 1, of=0), *ends(1), call(2, 1, of=0)], [], ""),
    "one after the other": ([call(1), *said(1, Joined(1)), call(0, of=1)], [], ""),
    "own handler of SIGTERM": ([*said(0, Joining("h:1", 3, 0, "t.py:2", term_handler="t.py:7"))], ["jax.distributed.initialize() replaces the program's SIGTERM handler (t.py:7) by JAX's, so the program's is never called; set it after initialize()"], ""),
    "no numbers": ([call(0), call(1, None), *said(2, Joining("h:1", None, None))], [], ""),
    # versions and settings
    "equal versions": (calls(3, jax="2"), [], ""),
    "one of which nothing is known": (calls(3, jax=["", "2", "2"]), [], ""),
    "another jax": (calls(3, jax=["2", "1", "2"]), ["rank 1 has jax 1, ranks 0,2 have 2" + NEEDED], ""),
    "another jaxlib": (calls(3, jax="2", jaxlib=["2", "1", "2"]), ["rank 1 has jaxlib 1, ranks 0,2 have 2" + NEEDED], ""),
    "before all have called": (calls(2, jax=["2", "1"], settings=[{}, {"XLA_FLAGS": "--a"}]), [], ""),
    "both": (calls(3, jax=["2", "1", "2"], jaxlib=["2", "1", "2"]), ["rank 1 has jax 1, ranks 0,2 have 2" + NEEDED], ""),
    "settings of which nothing is known": (calls(3, settings=[None, {"XLA_FLAGS": "--a"}, {"XLA_FLAGS": "--a"}]), [], ""),
    "equal settings": (calls(3, settings={"XLA_FLAGS": "--a"}), [], ""),
    "another setting": (calls(3, settings=[{}, {"JAX_ENABLE_X64": "1"}, {}]), ["rank 1 has JAX_ENABLE_X64=1, ranks 0,2 have none" + NEEDED], ""),
    "no such setting": (calls(3, settings=[{"JAX_PLATFORMS": "cpu"}, {"JAX_PLATFORMS": "cpu"}, {}]), ["rank 2 has no JAX_PLATFORMS, ranks 0-1 have JAX_PLATFORMS=cpu" + NEEDED], ""),
    "another flag": (calls(3, settings=[{"XLA_FLAGS": "--a --b=1"}, {"XLA_FLAGS": "--a --b=2"}, {"XLA_FLAGS": "--a --b=1"}]), ["rank 1 has XLA_FLAGS=--b=2, ranks 0,2 have --b=1" + NEEDED], ""),
    "an address that is not the machine's": ([call(0, elsewhere=True, where="t.py:3")], [f"rank 0 {AT} coordinator_address=h:1, which is not an address of its machine"], ""),
    "other numbers": ([*join(3), *(e for rank in range(3) for e in said(rank, ProcessNumber("tpu", (rank + 1) % 3)))], ["jax.process_index() is not the rank here: 0 is rank 2, 1 is rank 0, 2 is rank 1"], ""),
    # ranks that run alone
    "all alone": ([*calls(3, where="t.py:3"), *each(3, LATE), 99.0], [], ""),
    "all alone, and they go on": ([*calls(3, where="t.py:3"), *each(3, LATE), *each(3, JIT)], [LONE], ""),
    "they had compiled before": ([*each(1, JIT), *calls(3), *each(3, LATE), 99.0], [], ""),
    "joined after all": ([*calls(3), *each(3, LATE), *join(3), *each(3, LATE), *each(3, JIT)], [], ""),
    "none has joined and one compiles": ([*each(1, JIT), 99.0], [], ""),
    "none has joined and two compile": (each(3, JIT), [APART], ""),
    "they join late": ([*each(2, ImportedJax("1", "1", "3")), 9.0, call(2), 99.0], [], ""),
    "a process below": (said(1, CalledBelow("t.py:9", False)), [f"rank 1 {BELOW}"], ""),
    "processes below": ([*said(1, CalledBelow("t.py:9", False)), *said(0, CalledBelow("t.py:9", False))], [f"rank 1 {BELOW}"], ""),
}  # fmt: skip


#: The same of two ranks on host a, and of one on host b.
ON_HOSTS: dict[str, tuple[Sequence[Event], list[str], str]] = {
    "at one port of two hosts": ([call(0, 1), call(2, 1, of=0)], [], ""),
    "one loopback address on two hosts": ([call(0, 2, "127.0.0.1:1"), call(2, 2, "127.0.0.1:1", of=0)], [], ""),
    "equal devices": (backends((0, GPU), (1, GPU), (2, GPU)), [], ""),
    "all on the CPU": (backends((0, CPU), (1, CPU), (2, CPU)), [], ""),
    "one without a GPU": (backends((0, CUDA), (2, CPU), (1, CUDA)), [f"rank 2 on b uses the CPU, the others GPUs: {SEES_NONE}"], ""),
    "two without, and why": (backends((0, GPU), (1, FELL_BACK), (2, FELL_BACK)), [f"ranks 1-2 on a, b use the CPU, rank 0 GPUs: {FOUND_NONE}"], ""),
    "all fell back": (backends(*((rank, FELL_BACK) for rank in range(3))), [f"all ranks use the CPU, although this machine has GPUs: {FOUND_NONE} (or -x JAX_PLATFORMS=cpu if you want the CPU)"], ""),
    "another count": (backends((0, Backend("gpu", 4)), (1, Backend("gpu", 4)), (2, GPU)), ["rank 2 on b has 1 local GPU, the others 4"], ""),
    "another count of CPU devices": (backends((0, CPU), (1, Backend("cpu", 2)), (2, CPU)), ["rank 1 on a has 2 local CPU devices, the others 1"], ""),
    "it never came": ([*ends(1), call(0), call(2)], [LATER.replace("rank 1", "rank 1 on a")], NOW.replace("rank 1", "rank 1 on a")),
}  # fmt: skip


#: The same where -d 4 has been asked for.
ASKED: dict[str, tuple[Sequence[Event], list[str], str]] = {
    "as many as asked for": ([*join(3), *each(3, Backend("cpu", 4))], [], ""),
    "fewer than asked for": ([*join(3), *each(3, CPU)], ["ranks 0-2 have 1 local CPU device, but -d 4 asks for 4: does the program set jax_num_cpu_devices itself?"], ""),
    "one has fewer than asked for": ([*join(3), *said(1, CPU), *said(0, Backend("cpu", 4)), *said(2, Backend("cpu", 4))], ["rank 1 has 1 local CPU device, but -d 4 asks for 4: does the program set jax_num_cpu_devices itself?"], ""),
    "CPU devices asked for, and GPUs used": ([*join(3), *each(3, GPU)], [], ""),
    "a backend that is being started": ([*join(3), *said(1, Backend("cpu", 0))], [], ""),
}  # fmt: skip


def mentions(events: Sequence[Event], notes: list[str], end: str, **known: Any) -> None:
    told = Told(events, **known)
    assert (told.notes, told.end, told.state.failed_hints) == (notes, end, [])


@pytest.mark.parametrize("name", WHILE_IT_RUNS)
def test_findings_during_a_run_are_worded(name: str) -> None:
    mentions(*WHILE_IT_RUNS[name])


@pytest.mark.parametrize("name", ON_HOSTS)
def test_findings_name_several_hosts(name: str) -> None:
    mentions(*ON_HOSTS[name], hosts=("a", "a", "b"))


@pytest.mark.parametrize("name", ASKED)
def test_missing_devices_are_a_finding(name: str) -> None:
    mentions(*ASKED[name], asked=DevicesAsked("-d 4", 4, "CPU device"))


def test_no_finding_is_reported_once_the_job_ends() -> None:
    told = Told([])
    told.state.on_stop_reason(StopReason("enough", 1), 0.5)
    for event in (*ends(1), call(0), call(2, of=0)):
        told.happens(event)
    assert (told.notes, told.end) == ([], "")


def test_pending_finding_is_reported_at_the_end() -> None:
    told = Told([])
    for event in said(1, CalledBelow("t.py:9", True)):
        told.happens(event, pause=-1.0)
    assert [found.words for found in told.announcer.ask_last(2.0)] == [
        "rank 1 started a process that called initialize() again at t.py:9; it is not a rank, so the "
        'call was skipped: put the call under `if __name__ == "__main__":`'
    ]
    assert told.announcer.ask_last(3.0) == []


# --- at a limit ---

RAISED = Raised("ValueError", "ValueError: not finite", "data.py:12")
FAILED_TEST = FailedTest("t.py::test_a", RAISED)
LOST_IN_TEST = FailedTest(
    "t.py::test_b", Raised("JaxRuntimeError", "JaxRuntimeError: Connection closed by peer")
)
CALLBACK = UnhandledError("MainThread", RAISED, callback="jax.pure_callback")


def ran(rank: int, identity: int = 1) -> list[Event]:
    return [Launched(rank, identity)]


#: What happens, and what is said when a limit is reached.
AT_A_LIMIT: dict[str, tuple[Sequence[Event], list[str]]] = {
    "no JAX": ([], []),
    "all wait": ([call(0, jax="2"), call(1, jax="1"), call(2, jax="2")], ["rank 1 has jax 1, ranks 0,2 have 2" + NEEDED]),
    "all have joined": (join(3), []),
    "tests have failed": ([*join(3), *said(1, FAILED_TEST), *said(2, FAILED_TEST), *said(0, LOST_IN_TEST), 3.0], ["ranks 1-2 failed in t.py::test_a 3 s ago: ValueError: not finite, at data.py:12"]),
    "a callback has failed": ([*join(3), *said(1, CALLBACK), 3.0], ["rank 1's jax.pure_callback failed 3 s ago: ValueError: not finite, at data.py:12"]),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_A_LIMIT)
def test_findings_at_a_limit_are_worded(name: str) -> None:
    events, lines = AT_A_LIMIT[name]
    told = Told(events)
    assert (told.at_limit(), told.state.failed_hints) == (lines, [])


# --- after a failure ---

TASK = "/job:jax_worker/replica:0/task:"
HEARTBEATS = "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n{}1\nThe tasks have crashed.\n"
BARRIER = (
    "INTERNAL: Shutdown barrier has failed.\nBarrier result: 'DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::1::0.\n"
    "# of tasks that reached the barrier: 1/3.\nThe first task at the barrier: {0}1. Some timed out task names:\n{0}0\n{0}2\n [type]\n"
)
NOBODY = f"{FATAL}DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.coordination.CoordinationService/RegisterTask\n"
LOCAL = "INTERNAL: Getting local topologies failed: Error 1: " + "\n\nError 2: ".join(
    f"GetKeyValue() timed out with key: cuda:local_topology/cuda/{process} and duration: 2m"
    for process in (1, 2)
)
GLOBAL = "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cuda:global_topology/cuda and duration: 5m"
TUNING = (
    "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: gpu:gemm_fusion_autotuning_results_"
    "b190aeb9aa0b_iuhMRX2JY-YpaUJD_2 and duration: 24h"
)
TIMED_OUT = "JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: save_3::0. This usually happens.\nSome timed out task names:\n0\n2\n [type]"
FINISHED = "rank 1 finished and waited in JAX's exit barrier for ranks 0,2, longer than the shutdown_timeout_seconds of its initialize()"
INCARNATION = f"{FATAL}ALREADY_EXISTS: newer incarnation\n"
GLOO = "JaxRuntimeError: INTERNAL: Gloo all-reduce: Timed out waiting"
CLEANED = "rank 1 raised ValueError: not finite, at data.py:12; then its clean-up waited for other ranks at t.py:13"
CLEAN_UP = "hint: clean-up that computes with the other ranks must run in all of them, or in none: a `finally:` or `with` runs in a rank that fails alone, too"
SILENT = "rank 1 stopped sending heartbeats: it was stopped or swapped out, or held the GIL, for longer than initialize()'s heartbeat_timeout_seconds"


def crash(file: str, line: int) -> str:
    """The stack of a rank that has crashed in this line."""
    return f'Stack (most recent call first):\n  File "{file}", line {line} in close'


def aborted(*ranks: int, printed: str) -> list[Event]:
    return [event for rank in ranks for event in ends(rank, ABRT, printed)]


def without_backend(text: str, *before: Event) -> list[Event]:
    summary = f"RuntimeError: Unable to initialize backend 'cuda': {text}"
    return [*join(3), *before, *fails(0, summary), *ends(0, 1)]


#: What happens, and the first lines of the summary.
AFTER_A_FAILURE: dict[str, tuple[Sequence[Event], list[str]]] = {
    "one left": ([*join(3), *ends(1), *aborted(0, 2, printed=FATAL + HEARTBEATS.format(""))], [LEFT, "the 2 other ranks: aborted by JAX as a consequence"]),
    "one left, of a named task": ([*join(3), *ends(1), *aborted(0, 2, printed=FATAL + HEARTBEATS.format(TASK))], [LEFT, "the 2 other ranks: aborted by JAX as a consequence"]),
    "one was stopped": ([*join(3), *aborted(0, 2, printed=FATAL + HEARTBEATS.format(""))], [SILENT]),
    "the exit barrier": ([*join(3), *aborted(1, 0, 2, printed=FATAL + BARRIER.format(""))], [FINISHED]),
    "the exit barrier, of named tasks": ([*join(3), *aborted(1, 0, 2, printed=FATAL + BARRIER.format(TASK))], [FINISHED]),
    "a program may number its processes": ([call(0, of=2), call(2, of=0), *aborted(0, printed=NOBODY)], ["rank 1 never called initialize(), while the others waited for it"]),
    "twice the same process": ([call(0), call(1, of=2), call(2), *aborted(2, printed=INCARNATION)], [f"rank 1 {WITH} process_id=2, the same as rank 2; its own is 1", OWN[1:]]),
    "another address": ([call(0), call(1), call(2, at="[::1]:7"), *aborted(0, printed=NOBODY)], [f"rank 2 {WITH} coordinator_address=[::1]:7, where the others have h:1", OWN[1:]]),
    "another size": ([call(0), call(1), call(2, 2), *aborted(0, printed=NOBODY)], [f"rank 2 {WITH} num_processes=2, where the others have 3", OWN[1:]]),
    "another jax": ([*calls(3, jax=["2", "1", "2"]), *aborted(0, 1, printed=NOBODY)], ["rank 1 has jax 1, ranks 0,2 have 2" + NEEDED]),
    "a wrong address": ([call(0, elsewhere=True, where="t.py:3"), call(1), call(2), *aborted(0, printed=NOBODY)], [f"rank 0 {AT} coordinator_address=h:1, which is not an address of its machine"]),
    "a second process": ([*join(3), *said(1, Joining("h:1", 3, 1, "t.py:2"), main=False, beside=True), *fails(1, "RuntimeError: x", where="")], ["rank 1 called initialize() in a second process too, at t.py:2: put the code that starts processes under `if __name__ == '__main__':`"]),
    "no GPU": (without_backend(LOCAL, *said(1, CPU)), ["rank 1 uses the CPU: the others waited for its cuda devices"]),
    "no backend in time": (without_backend(LOCAL), ["rank 1 did not start a backend for cuda in time (nor did rank 2)"]),
    "no part in a compilation": (without_backend(TUNING), ["rank 2 did not reach a compilation that it shares with the others"]),
    "a barrier of its own": ([*join(3), *fails(1, TIMED_OUT, where="/me/train.py:7 in save")], ["rank 0 did not reach the barrier 'save_3' in time (nor did rank 2)"]),
    "a clean-up that JAX aborts": ([*join(3), *said(1, Handling(RAISED, "t.py:13"), Crashed(crash("/me/t.py", 13))), *fails(0, GLOO), *aborted(1, printed=FATAL)], [CLEANED, CLEAN_UP]),
    "an abort after a clean-up": ([*join(3), *said(1, Handling(RAISED, "t.py:13"), Crashed(crash("/me/t.py", 14))), *fails(0, GLOO), *aborted(1, printed=FATAL)], ["rank 2 did not reach a collective in which others gave up waiting"]),
    "a clean-up that fails": ([*join(3), *fails(1, GLOO, where="t.py:13", before=RAISED), *fails(0, GLOO)], [CLEANED, CLEAN_UP]),
    "a clean-up of all": ([*join(3), *(e for r in range(3) for e in fails(r, GLOO, before=RAISED))], ["3 ranks failed: " + GLOO]),
    "a callback": ([*join(3), *said(1, CALLBACK), *fails(0, GLOO)], ["rank 1 raised in its jax.pure_callback: ValueError: not finite, at data.py:12"]),
    "a collective": ([*join(3), *fails(0, GLOO), *fails(2, GLOO)], ["rank 1 did not reach a collective in which others gave up waiting"]),
    "a collective without one that has finished": ([*join(3), *said(1, Leaving()), *fails(0, GLOO), *fails(2, GLOO)], ["rank 1 finished without reaching a collective in which others gave up waiting"]),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER_A_FAILURE)
def test_findings_after_a_failure_are_worded(name: str) -> None:
    events, lines = AFTER_A_FAILURE[name]
    told = Told(events)
    assert (list(told.summary()[: len(lines)]), told.state.failed_hints) == (lines, [])


def test_positions_of_stopped_ranks_are_mentioned() -> None:
    told = Told([*join(3), *fails(1, TIMED_OUT, where="/me/train.py:7 in save"), *ends(1, 1)])
    told.state.ranks[0].late_position = "in f at train.py:3"
    assert told.summary()[0].endswith(" (nor did rank 2); it was in f at train.py:3")
    for rank in (0, 2):
        told.state.ranks[rank].late_position = "at the barrier 'save_4' at train.py:7"
    assert told.summary()[0] == (
        "the ranks waited at different barriers: ranks 0,2 at the barrier 'save_4' at train.py:7, "
        "rank 1 at the barrier 'save_3' in save at train.py:7"
    )


def test_different_collectives_are_blamed_on_no_rank() -> None:
    """One crashes, one fails, one is ended where it stood: the first to notice did no wrong."""
    stack = 'Stack (most recent call first):\n  File "/me/t.py", line 7 in train\n'
    sizes = "enforce fail at pair.cc:459] op.preamble.length <= op.nbytes. 66668 vs 4"
    closed = "ValueError: Gloo AllReduce failed: Connection closed by peer"
    crash = [*said(1, Crashed(stack)), *ends(1, ABRT, sizes)]
    told = Told([*join(3), *crash, *fails(0, closed, where="/me/t.py:9 in validate")])
    told.state.ranks[2].late_position = "in jit(evaluate) at t.py:9"
    first, *others = told.summary()
    assert first == (
        "the ranks ran different collectives: rank 0 in validate at t.py:9, rank 1 in train at "
        "t.py:7, rank 2 in jit(evaluate) at t.py:9"
    )
    assert any("--verify-spmd" in line for line in others)


def test_program_at_which_different_collectives_began_is_named() -> None:
    """Although the ranks were ended before it could be told: with or without --verify-spmd."""
    sizes = "enforce fail at pair.cc:459] op.preamble.length <= op.nbytes. 66668 vs 4"
    told = Told(
        [*join(3), *said(1, Crashed("")), *ends(1, ABRT, sizes), *ends(0, -9), *ends(2, -9)]
    )
    sequences = told.state.sequences = ProgramSequences()
    for identity, name in enumerate(("forward", "update"), 1):
        sequences.names.record(identity, ProgramName(f"jit({name})", f"t.py:{identity}"))
    for rank in range(3):
        launch(told.state, rank, *([1, 2, 1, 3, 4] if rank == 2 else [1, 2, 2, 3, 4]))
    lines = told.summary()
    assert lines[0] == (
        "the ranks ran different collectives: rank 2 ran jit(forward) at t.py:1 in place of "
        "jit(update) at t.py:2 (program 3 of this mesh), which ranks 0-1 ran"
    )
    assert not any("this mesh" in line or "--verify-spmd" in line for line in lines[1:])


#: What happens, and what is worth saying of it beside the failure, or where nothing has failed.
BESIDE: dict[str, tuple[Sequence[Event], str]] = {
    "another setting": ([*join(2, settings=[{}, {"JAX_ENABLE_X64": "1"}]), *fails(1)], "rank 1 has JAX_ENABLE_X64=1, rank 0 has none" + NEEDED),
    "other devices": ([*join(3), *said(0, GPU), *said(1, CPU), *fails(1)], f"rank 1 uses the CPU, rank 0 GPUs: {SEES_NONE}"),
    "one alone": ([*calls(3, where="t.py:3"), *said(1, LATE), *fails(0, joined=False), *ends(0, 1), *ends(1)], LONE.replace("these are 3 separate single-process jobs", "rank 1 is a single-process job, separate from the others").replace("all 3 ranks", "it")),
    "all alone": ([*calls(3, where="t.py:3"), *each(3, LATE), *ends(0), *ends(1), *ends(2)], LONE),
    "one process each": ([*(call(rank, 1, f"h:{rank}", of=0) for rank in range(3)), *ends(0), *ends(1), *ends(2)], "these ran as 3 separate single-process jobs: each rank called initialize() with num_processes=1"),
    "none has joined": ([*each(3, ImportedJax("1", "1", "3")), *ends(0), *ends(1), *ends(2)], APART),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_wait_beside_a_failure_is_worded(name: str) -> None:
    events, line = BESIDE[name]
    told = Told(events)
    assert line in told.summary()
    assert told.state.failed_hints == []


LOGGED = (
    "ERROR:root:failed\nTraceback (most recent call last):\n"
    '  File "/home/me/train.py", line 8, in step\n    boom()\nValueError: bad batch\n'
)
LOST = "Traceback (most recent call last):\n  x\nValueError: UNKNOWN: Gloo AllGather failed: Connection closed by peer\n"  # fmt: skip
SAYS_LOGGED = "rank 1 logged ValueError: bad batch, at /home/me/train.py:8, and finished"


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([*ends(0, printed=LOST), *ends(1, printed=LOGGED), *ends(2)], [SAYS_LOGGED]),
        ([*ends(0), *ends(1, printed=LOGGED), *ends(2)], []),
        ([*ends(0, printed=LOST), *ends(1), *ends(2)], []),
    ],
    ids=["needed", "not needed", "only lost"],
)
def test_logged_exception_is_named_where_others_needed_the_rank(
    events: Sequence[Event], lines: list[str]
) -> None:
    assert list(Told([*join(3), *events]).summary()) == lines


def test_interrupted_ranks_have_not_failed() -> None:
    """Unlike a rank that fails over its end, or is interrupted by another signal's handler."""
    interrupt: dict[str, Any] = {"exception": "KeyboardInterrupt", "status": 130}
    events = [
        *said(0, failure("KeyboardInterrupt", **interrupt), sent=(signal.SIGINT,)),
        *said(1, failure("ValueError: disk full"), sent=(signal.SIGINT,)),
        *said(2, failure("KeyboardInterrupt", **interrupt), sent=(signal.SIGTERM,)),
    ]
    state = Told([*join(3), *events]).state
    assert [run.failed for run in state.ranks.values()] == [False, True, True]
    assert {determine_verdict(run) for run in state.ranks.values()} == {Verdict.STOPPED}
    words = [describe_rank_end(run) for run in state.ranks.values()]
    assert words == [
        "ended by SIGINT",
        "failed after SIGINT: ValueError: disk full",
        "failed after SIGTERM: KeyboardInterrupt",
    ]


@pytest.mark.parametrize("main", [True, False])
def test_only_ranks_own_programs_count_as_ended(main: bool) -> None:
    """A wrapper's script may have work to do behind a Python program."""
    told = Told([*join(2), *said(0, failure(), main=main)], ranks=2)
    assert not told.state.only_ends
    told.happens(end_of(1, 0))
    assert told.state.only_ends == main
    told.happens(end_of(0, 1))
    assert not told.state.only_ends


def test_uncaught_exception_is_not_repeated() -> None:
    uncaught = fails(1, f"RuntimeError: {LATE.summary}", joined=False)
    stopped = ends(0, -signal.SIGTERM, sent=(signal.SIGTERM,))
    told = Told([*calls(2), *said(1, LATE), *uncaught, *ends(1, 1), *stopped])
    assert not any("single-process" in line for line in told.summary())


def test_missing_keys_of_jax_are_parsed() -> None:
    keys: dict[str, Any] = {LOCAL: ("cuda", (1, 2)), GLOBAL: ("cuda", (0,)), TUNING: ("", (2,))}
    keys |= {GLOBAL + LOCAL: ("cuda", (1, 2))}
    keys |= {"GetKeyValue() timed out with key: mine/1 and duration: 2m": None}
    assert {text: find_missing_key(text) for text in keys} == keys


# --- the table ---


def test_failing_rule_loses_neither_other_rules_nor_the_summary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(view: View) -> Iterator[Finding]:
        raise ValueError("broken")
        yield

    assert len({rule.name for rule in RULES}) == len(RULES)
    others = [each for each in RULES if each.name != "other_version"]
    at_limit = frozenset({Moment.LIMIT})
    monkeypatch.setattr(rules, "RULES", [Rule(broken, at_limit), *others])
    told = Told([call(0), call(2), *said(1, CALLBACK)])
    assert told.at_limit()[0].startswith("rank 1's jax.pure_callback failed")
    failed = "the rule broken failed: ValueError('broken'); please report this"
    assert set(told.state.failed_hints) == {failed}


# --- what it costs ---


def test_findings_cost_grows_with_time_not_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 ranks that come, and end, within 2 s each: passes by the time, not by the ranks."""
    count, seconds = 1000, 2.0
    asked: Counter[str] = Counter()

    def watched(rule: Rule) -> Rule:
        def count_and_find(view: View) -> Iterable[Finding]:
            asked[rule.name] += 1
            return rule.find(view)

        return rule.copy_with(find=count_and_find)

    monkeypatch.setattr(rules, "RULES", tuple(map(watched, RULES)))
    told = Told(ends(1), count)
    for event in (
        call,
        lambda rank, _: FromHook(rank, Joined(rank)),
        lambda rank, _: FromHook(rank, Leaving()),
        lambda rank, _: end_of(rank, 0),
    ):
        for rank in range(2, count):
            told.happens(event(rank, count), pause=seconds / count)
    assert told.notes == [LATER]
    assert set(asked.values()) <= set(range(1, 50))


def test_only_ranks_that_just_wait_count_as_waiting() -> None:
    """Ranks in initialize(), and in the exit barrier, where one has failed that they wait for."""
    told = Told([*calls(3), *said(1, Joined(1), Leaving())])
    assert not told.state.only_waits  # none has failed
    told = Told([call(1), *said(1, Joined(1)), call(0), *ends(2, 3)])
    assert not told.state.only_waits
    told.happens(FromHook(1, Leaving()))
    assert told.state.only_waits
    told.happens(FromHook(1, Left()))
    assert not told.state.only_waits
