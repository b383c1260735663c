"""Who took the others down, what stands still, and what is advised: tables."""

import signal

import pytest

from mcjax_launch.diagnosis.hang import hints, picture
from mcjax_launch.diagnosis.hints import advice
from mcjax_launch.diagnosis.root_cause import judge
from mcjax_launch.job.job import Job
from mcjax_launch.run.state import History, RankRun
from mcjax_launch.watchdog.limits import Limits

FATAL = (
    "F1120 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died. absl::Status: "
)
TASK = "/job:jax_worker/replica:0/task:"
HEARTBEATS = "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n{}1\nThe tasks have crashed.\n"
BARRIER = (
    "INTERNAL: Shutdown barrier has failed.\nBarrier result: 'DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::1::0.\n"
    "# of tasks that reached the barrier: 1/3.\nThe first task at the barrier: {0}1. Some timed out task names:\n{0}0\n{0}2\n [type]\n"
)
NOBODY = "DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.coordination.CoordinationService/RegisterTask\n"
GIVEN = {"coordinator_address": "127.0.0.1:5", "num_processes": 3}


def history(joined: str = "", joining: str = "", **coordinates: dict[str, object]) -> History:
    """Of three ranks, of which these have joined, or only called initialize()."""
    found = History({rank: RankRun(rank, "h") for rank in range(3)}, num_processes=3)
    for rank in map(int, joining or joined):
        told = {**GIVEN, "process_id": rank, **coordinates.get(f"rank{rank}", {})}
        found.hooked(rank, {"joining": told}, 1.0)
        if str(rank) in joined:
            found.hooked(rank, {"joined": told}, 2.0)
    return found


def ended(
    found: History, rank: int, status: int, said: str = "", sent: tuple[int, ...] = ()
) -> None:
    body = {"status": status, "sent": sent, "cpu_s": 1.0, "peak_kib": 1, "killer": ""}
    found.exited(rank, body, 9.0)
    found.ranks[rank].stderr = said


def first_line(found: History) -> str:
    return judge(found).report[0]


@pytest.mark.parametrize("task", ["", TASK])
def test_heartbeats(task: str) -> None:
    found = history(joined="012")
    ended(found, 1, 0)
    for rank in (0, 2):
        ended(found, rank, -signal.SIGABRT, FATAL + HEARTBEATS.format(task))
    assert first_line(found).startswith("rank 1 ended with 0 without leaving the job: os._exit()")
    assert judge(found).status == 134
    assert judge(found).report[1] == "the 2 other ranks: 2 aborted by JAX as a consequence"


@pytest.mark.parametrize("task", ["", TASK])
def test_exit_barrier(task: str) -> None:
    found = history(joined="012")
    for rank in (1, 0, 2):
        ended(found, rank, -signal.SIGABRT, FATAL + BARRIER.format(task))
    assert first_line(found).startswith(
        "rank 1 was done and waited in JAX's exit barrier for ranks 0,2"
    )


def test_other_process_ids_need_not_be_wrong() -> None:
    """A program may number its processes as it likes, if each number comes once."""
    numbers = {"rank0": {"process_id": 2}, "rank2": {"process_id": 0}}
    found = history(joining="02", **numbers)
    ended(found, 0, -signal.SIGABRT, FATAL + NOBODY)
    assert first_line(found).startswith("rank 1 never called initialize(), while the others waited")


def test_twice_the_same_process() -> None:
    found = history(joining="012", rank1={"process_id": 2})
    ended(found, 2, -signal.SIGABRT, FATAL + "ALREADY_EXISTS: newer incarnation\n")
    assert (
        first_line(found)
        == "rank 1 called initialize() with process_id=2, which is another's: it was given 1"
    )


@pytest.mark.parametrize(("field", "value", "words"), [
    ("coordinator_address", "[::1]:7", "the coordinator's address [::1]:7, where others have 127.0.0.1:5"),
    ("num_processes", 2, "num_processes 2, where others have 3"),
])  # fmt: skip
def test_other_coordinates(field: str, value: object, words: str) -> None:
    found = history(joining="012", rank2={field: value})
    ended(found, 0, -signal.SIGABRT, FATAL + NOBODY)
    assert first_line(found) == f"rank 2 called initialize() with {words}"


def test_nobody_to_blame_but_the_one_that_said_it_first() -> None:
    found = history(joined="012")
    ended(found, 2, -signal.SIGABRT, FATAL + "INTERNAL: something new\n")
    assert first_line(found) == "rank 2 failed: killed by SIGABRT"


def test_a_culprit_among_victims_is_found_without_their_words() -> None:
    found = history(joined="012")
    ended(found, 1, -signal.SIGABRT, FATAL + "Failed to send RPC to coordination service")
    ended(found, 0, -signal.SIGSEGV)
    assert first_line(found) == "rank 0 failed: killed by SIGSEGV (segmentation fault)"


def test_many_alike() -> None:
    found = history(joined="012")
    told = {
        "status": 1,
        "joined": True,
        "exception": "ValueError",
        "where": "t.py:3 in f",
        "traceback": "T",
    }
    for rank in (2, 0, 1):
        where = "t.py:9 in g" if rank == 1 else "t.py:3 in f"
        body = told | {"summary": f"ValueError: {rank}", "where": where}
        found.hooked(rank, {"failed": body, "main": True}, 3.0)
        ended(found, rank, -signal.SIGKILL, sent=(signal.SIGTERM, signal.SIGKILL))
    assert first_line(found) == "2 ranks failed, rank 2 first: ValueError: 2"
    assert judge(found).report[-1] == "the other rank: failed: ValueError: 1"


def test_a_second_process_that_fails_in_its_own_way_first() -> None:
    found = history(joined="012")
    again = {"coordinator_address": "127.0.0.1:5", "num_processes": 3, "where": "t.py:2"}
    found.hooked(1, {"joining": again, "beside": 77}, 2.5)
    told = {"status": 1, "joined": True, "exception": "RuntimeError", "summary": "RuntimeError: x"}
    found.hooked(1, {"failed": {**told, "traceback": "", "where": ""}, "main": False}, 3.0)
    ended(found, 1, -signal.SIGKILL, sent=(signal.SIGTERM, signal.SIGKILL))
    words = "rank 1 called initialize() in a second process as well, at t.py:2: "
    assert first_line(found).startswith(words)


ADVICE = {
    "RuntimeError: jax.distributed.initialize() must be called before any JAX calls": "call jax.distributed.initialize() before",
    "E server_chttp2.cc Failed to add port to server: No address added": "the port is in use",
    "RPC failed: different incarnation": "two processes came to the coordinator as one",
    "AssertionError: sync_global_devices name mismatch ('a')": "the ranks are at different places",
    "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating": "out of memory: less for each device",
    "F parse_flags Unknown flags in XLA_FLAGS: --xla_x": "XLA_FLAGS names a flag",
    "ValueError: Number of processes must be defined.": "the hook did not run in this Python",
}  # fmt: skip


@pytest.mark.parametrize("said", ADVICE)
def test_advice(said: str) -> None:
    [line] = advice(RankRun(0, "h", stderr=said))
    assert line.startswith(f"hint: {ADVICE[said]}")


def test_advice_on_proxies_only_while_joining() -> None:
    said = "JAX detected proxy variable(s) in the environment"
    assert advice(RankRun(0, "h", stderr=said, joining_at=1.0))
    assert not advice(RankRun(0, "h", stderr=said, joining_at=1.0, joined_at=2.0))


# --- stalls ---


def compiled(found: History, rank: int, name: str, done: bool = True) -> None:
    body = {"name": name, "where": "train.py:8", "platform": "cpu"}
    found.hooked(rank, {"compiling": body}, 3.0)
    if done:
        found.hooked(rank, {"compiled": True}, 4.0)


def test_the_picture_of_ranks_that_wait() -> None:
    found = history(joined="02", joining="02")
    for rank in (0, 2):
        compiled(found, rank, "jit_step")
    assert picture(found) == [
        "never called initialize(): rank 1",
        "ranks 0,2: compiled last jit(step) at train.py:8",
    ]
    assert hints(found) == [
        "hint: a rank that does not call initialize() holds up all others: what does it wait for?"
    ]
    compiled(found, 0, "jit_other", done=False)
    assert hints(found) == []


def test_no_picture_of_a_job_without_jax() -> None:
    assert picture(history()) == []
    assert picture(history(), jax=True)[0] == "never called initialize(): ranks 0-2"


def job(**more: object) -> Job:
    return Job(program=("x",), python="python", chdir="/", **more)  # type: ignore[arg-type]


def test_stall_limit() -> None:
    found = history(joined="012")
    limits = Limits(job(stall_timeout=10.0), found, 0.0)
    assert (limits.deadline, limits.reached(19.0)) == (20.0, None)  # nobody has looked yet
    found.used({}, 8.0)
    assert (limits.deadline, limits.reached(9.0)) == (10.0, None)
    found.printed(1, 9.0)
    found.used({}, 15.0)
    assert (limits.deadline, limits.reached(14.0)) == (19.0, None)
    compiled(found, 0, "jit_step", done=False)
    assert (limits.deadline, limits.reached(100.0)) == (None, None)  # as long as it compiles
    found.hooked(0, {"compiled": True}, 101.0)
    found.used({}, 108.0)
    stop = limits.reached(112.0)
    assert stop is not None and (stop.status, stop.final, stop.picture) == (124, False, True)
    assert limits.reached(200.0) is None


def usage(cpu_s: float, main_s: float) -> dict[str, list[float]]:
    return {"0": [cpu_s, 1000, main_s]}


@pytest.mark.parametrize(("platform", "cpu_s", "main_s", "busy"), [
    ("cpu", 0.9, 0.0, True),  # a long step: others of its threads compute
    ("cpu", 0.01, 0.0, False),  # heartbeats
    ("", 0.9, 0.0, True),  # no JAX at all
    ("gpu", 8.0, 0.0, False),  # NCCL spins while it hangs
    ("gpu", 8.0, 0.01, True),  # the main thread hands over the next step
])  # fmt: skip
def test_what_counts_as_progress(platform: str, cpu_s: float, main_s: float, busy: bool) -> None:
    found = history(joined="012")
    Limits(job(stall_timeout=10.0), found, 0.0)
    found.ranks[0].platform = platform
    found.used(usage(100.0, 1.0), 1.0)
    before = found.active_at
    found.used(usage(100.0 + cpu_s, 1.0 + main_s), 2.0)
    assert (found.active_at > before) == busy


def test_samples_are_thinned_not_kept_without_end() -> None:
    found = history(joined="012")
    for second in range(5000):
        found.used(usage(float(second), 1.0), float(second))
    samples = found.ranks[0].samples
    assert len(samples) <= 512
    assert (samples[0].at, samples[-1].at) == (0.0, 4999.0)


# --- ranks that part ---


def ran(found: History, rank: int, fingerprint: str) -> None:
    program = {
        "name": "jit_f",
        "fingerprint": fingerprint,
        "processes": None,
        "shapes": [],
        "where": "t.py:1",
    }
    found.hooked(rank, {"program": program, "main": True}, 5.0)


def test_where_ranks_part_the_others_get_a_moment_to_show_their_side() -> None:
    found = history(joined="012")
    limits = Limits(job(verify_spmd=True), found, 0.0)
    ran(found, 0, "a")
    ran(found, 1, "b")
    assert limits.reached(5.0) is None and limits.deadline == 6.0
    ran(found, 2, "a")
    stop = limits.reached(5.5)
    assert stop is not None and (stop.status, stop.final, stop.picture) == (1, True, False)
    assert stop.details[0] == "program #1: ranks 0-2 t.py:1 jit(f)"
    assert stop.details[1].startswith("but not the same one on ranks 0,2 · 1: ")
    assert limits.reached(9.0) is None


def test_a_jax_that_cannot_be_seen_into_is_told() -> None:
    found = history(joined="012")
    limits = Limits(job(verify_spmd=True), found, 0.0)
    found.hooked(2, {"blind": "it has no compile_or_get_cached"}, 3.0)
    stop = limits.reached(3.0)
    assert stop is not None and (stop.status, stop.words.rpartition(": ")[2]) == (
        1,
        "it has no compile_or_get_cached",
    )
    assert Limits(job(), found, 0.0).reached(9.0) is None


def test_a_failure_that_follows_from_the_divergence_is_not_the_cause() -> None:
    found = history(joined="012")
    limits = Limits(job(verify_spmd=True), found, 0.0)
    ran(found, 0, "a")
    ran(found, 1, "b")
    assert limits.reached(5.0) is None
    ended(found, 0, -signal.SIGABRT)
    assert judge(found).status == 1
    assert first_line(found) == "--verify-spmd: the ranks run different programs"
    assert (
        judge(found).report[1].startswith("program #1: ranks 0-1 t.py:1 jit(f) · rank 2 not there")
    )


def test_a_rank_that_fails_does_not_run_other_programs() -> None:
    found = history(joined="012")
    for rank in range(3):
        ran(found, rank, "a")
    told = {
        "status": 1,
        "joined": True,
        "exception": "E",
        "summary": "E",
        "where": "",
        "traceback": "T",
    }
    found.hooked(1, {"failed": told, "main": True}, 6.0)
    found.hooked(1, {"leaving": True, "main": True}, 6.0)
    ran(found, 0, "b")
    found.hooked(2, {"leaving": True, "main": True}, 7.0)
    assert found.programs.divergence is None
