"""What is advised on a failure, and what stands still: tables."""

import signal
from typing import Any

import pytest
from records import end_of, failure, say

from mcjax_launch.features.explain.hints import find_failure_hints
from mcjax_launch.features.explain.jax_messages.known_errors import KnownError, advise_on_variable
from mcjax_launch.features.recorder.sequences import diverged
from mcjax_launch.job.job import Job
from mcjax_launch.journal.facts import ProgramsCounted
from mcjax_launch.journal.rank_run import Membership, RankRun
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import summarize
from mcjax_launch.launcher.time_limits import TimeLimits, compute_usage_period_s
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.frames import Data
from mcjax_launch.wire.messages import Exited, RankUsage, Usage

FATAL = (
    "F1120 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died. absl::Status: "
)
GIVEN = {"coordinator_address": "127.0.0.1:5", "num_processes": 3}


def state_of(joined: str = "", joining: str = "", **coordinates: Any) -> RunState:
    """Of three ranks, of which these have joined, or only called initialize()."""
    state = RunState({rank: RankRun(rank, "h") for rank in range(3)}, num_processes=3)
    for rank in map(int, joining or joined):
        told = {**GIVEN, "process_id": rank, **coordinates.get(f"rank{rank}", {})}
        say(state, rank, hook.Joining(**told), 1.0)
        if str(rank) in joined:
            say(state, rank, hook.Joined(told["process_id"]), 2.0)
    return state


def ended(
    state: RunState, rank: int, status: int, said: str = "", sent: tuple[int, ...] = ()
) -> None:
    state.on_exited(end_of(rank, status, sent), 9.0)
    state.ranks[rank].stderr = said


def first_line(state: RunState) -> str:
    return summarize(state).lines[0]


def test_equal_failures_are_counted() -> None:
    state = state_of(joined="012")
    for rank in (2, 0, 1):
        where = "t.py:9 in g" if rank == 1 else "t.py:3 in f"
        say(state, rank, failure(f"ValueError: {rank}", where=where), 3.0)
        ended(state, rank, -signal.SIGKILL, sent=(signal.SIGTERM, signal.SIGKILL))
    assert first_line(state) == "2 ranks failed, rank 2 first: ValueError: 2"
    assert summarize(state).lines[-1] == "the other rank: failed: ValueError: 1"


@pytest.mark.parametrize("said", [
    "RuntimeError: distributed.initialize should only be called once.",
    "RuntimeError: jax.distributed.initialize() must be called before any JAX calls that",
])  # fmt: skip
def test_second_call_of_initialize_is_named(said: str) -> None:
    run = failed_at("jax.distributed.initialize()", said.partition(": ")[2])
    run.membership = Membership(call=hook.Joining("h:1", 2, 0, "t.py:3"), joined_at=1.0)
    [hint] = find_failure_hints(run, ranks=2)
    assert hint.startswith("hint: this process has called initialize() already at t.py:3: ")


def test_platform_without_a_plugin_is_named() -> None:
    told = failure(
        "AssertionError", traceback="assert _default_backend is not None\nAssertionError"
    )
    [hint] = find_failure_hints(RankRun(0, "h", failure=told))
    assert "JAX_PLATFORMS names only platforms that this jax has no plugin for" in hint
    assert find_failure_hints(RankRun(0, "h", failure=failure("AssertionError"))) == []


def test_getpass_needs_stdin() -> None:
    told = failure("EOFError", traceback="Traceback\n  File 'getpass.py'\nEOFError")
    run = RankRun(0, "h", failure=told)
    assert "getpass() need --stdin" in find_failure_hints(run)[0]


GETENV = "TypeError: int() argument must be a string, not 'NoneType'"
VARIABLES = {
    ("KeyError: 'MASTER_ADDR'", ""): "--env-style torch sets MASTER_ADDR ",
    (GETENV, "rank = int(os.environ.get('LOCAL_RANK'))"): "--env-style torch sets LOCAL_RANK ",
    (GETENV, "rank = int(args.rank)"): "",
    ("KeyError: 'SLURM_PROCID'", ""): "-x SLURM_PROCID={process_id} sets it",
    ("KeyError: 'NNODES'", ""): "-x NNODES={num_processes} sets it",
    ("KeyError: 'JAX_COORDINATOR_IP'", ""): "-x JAX_COORDINATOR_IP={coordinator_host} sets it",
    ("KeyError: 'DISTRIBUTED_COORDINATOR'", ""): "-x DISTRIBUTED_COORDINATOR={coordinator} sets it",
    ("KeyError: 'OMPI_COMM_WORLD_SIZE'", ""): "-x OMPI_COMM_WORLD_SIZE={num_processes} sets it",
    ("KeyError: 'SLURM_JOB_NODELIST'", ""): "ranks have no SLURM_JOB_NODELIST: jax.distributed",
    ("KeyError: 'loss'", ""): "",
}


@pytest.mark.parametrize(("text", "line"), VARIABLES)
def test_missing_variable_of_another_launcher_is_named(text: str, line: str) -> None:
    advice = advise_on_variable(text, line)
    assert VARIABLES[text, line] in advice
    assert bool(advice) == bool(VARIABLES[text, line])


@pytest.mark.parametrize(("rank", "hinted"), [(0, True), (1, False)])
def test_callback_failure_names_the_rank(rank: int, *, hinted: bool) -> None:
    state = state_of(joined="012")
    say(state, rank, hook.Program("jit_f", 1, None, "t.py:1"), 5.0)
    said = (
        "JaxRuntimeError: INTERNAL: CpuCallback error calling callback: Traceback (most recent call last):\n"
        '  File "/me/train.py", line 8, in check\nValueError: not finite'
    )
    raised = hook.Raised("ValueError", "ValueError: not finite", "data.py:12")
    say(state, rank, hook.UnhandledError("T", raised, callback="jax.pure_callback"), 8.0)
    say(state, rank, failure(said), 8.0)
    ended(state, rank, 1)
    lines = summarize(state).lines
    assert lines[0] == f"rank {rank} failed: ValueError: not finite (in a callback)"
    assert not any("before" in line for line in lines)
    assert any("with the data of all" in line for line in lines) == hinted


@pytest.mark.parametrize(("message", "told"), [("not finite", False), ("corrupt", True)])
def test_reraised_exception_of_a_thread_is_one_failure(message: str, *, told: bool) -> None:
    state = state_of(joined="012")
    raised = hook.Raised("ValueError", f"ValueError: {message}", "data.py:12")
    say(state, 1, hook.UnhandledError("loader", raised), 8.0)
    say(state, 1, failure("ValueError: not finite"), 8.0)
    ended(state, 1, 1)
    assert any("before" in line for line in summarize(state).lines) == told


def test_slice_errors_get_advice() -> None:
    said = "`jax.make_mesh` does not support multi-slice topologies. Please use"
    assert "--slices one" in find_failure_hints(RankRun(0, "h", stderr=said))[0]
    run = failed_at("jax.make_mesh((4,), ('a',))", said, slices=(0, 0, 1, 1))
    [line] = find_failure_hints(run, ranks=4)
    assert line.startswith("hint: JAX sees 2 slices (ranks 0-1; ranks 2-3): build the mesh with ")


RESHAPED = "cannot reshape array of size 1 into shape (2,4)"
WRONG_DEVICES = {
    "Number of devices 2 must be >= the product of mesh_shape (4, 2)": "the job has 2 devices, 1 in each rank; -d 4 gives 8",
    "Number of devices 8 must equal the product of mesh_shape (2,)": "the job has 8 devices, 4 in each rank; -d 1 gives 2",
    "Number of devices 2 must equal the product of mesh_shape (3,)": "the job has 2 devices, 1 in each rank; 2 ranks cannot share 3 equally: use another -n",
    RESHAPED: "each rank has 1 device; -d 8 gives 8",
    "compiling computation that requires 8 logical devices, but only 1 XLA devices are available": "each rank has 1 device; -d 8 gives 8",
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG_DEVICES)
def test_wrong_number_of_devices_gets_advice(said: str) -> None:
    hints = find_failure_hints(failed_at("devices.reshape(2, 4)", said), ranks=2)
    assert hints == [f"hint: {WRONG_DEVICES[said]}"]


ASSERTED = {
    "assert jax.device_count() == 8": "the job has 4 devices, 1 in each rank; -d 2 gives 8",
    "assert len(jax.devices()) == 8, 'eight'": "the job has 4 devices, 1 in each rank; -d 2 gives 8",
    "assert 8 <= jax.device_count()": "the job has 4 devices, 1 in each rank; -d 2 gives 8",
    "assert jax.local_device_count() >= 2": "each rank has 1 device; -d 2 gives 2",
    "assert jax.device_count() != 4": "",
    "assert jax.device_count() == 4": "",
    "assert jax.device_count() == 8 and fits(x)": "",
    "assert jax.device_count() == 4 * n": "",
    "assert not jax.device_count() == 8": "",
    "assert x.device_count() == 8": "",
    "assert jax.process_count() == 8": "",
    "assert n == 8 and jax.devices()": "",
}


@pytest.mark.parametrize("line", ASSERTED)
def test_asserted_number_of_devices_gets_advice(line: str) -> None:
    run = failed_at(line, "", exception="AssertionError")
    run.membership.backend = hook.Backend("cpu", 1)
    hint = ASSERTED[line]
    assert find_failure_hints(run, ranks=4) == ([f"hint: {hint}"] if hint else [])


def test_no_advice_on_devices_for_other_arrays_or_on_gpus() -> None:
    said = RESHAPED
    assert not find_failure_hints(failed_at("batch.reshape(2, 4)", said))
    run = failed_at("devices.reshape(2, 4)", said)
    assert find_failure_hints(run) == ["hint: the job has 1 device; -d 8 gives 8"]
    run.membership.backend = hook.Backend("cpu", 2)
    assert not find_failure_hints(run, ranks=2)  # and the ranks do not have the same number
    run.membership.backend = None
    run.compilations.platform = "gpu"
    assert not find_failure_hints(run)


def failed_at(
    line: str, said: str, slices: tuple[int, ...] = (), exception: str = "ValueError"
) -> RankRun:
    summary = f"{exception}: {said}" if said else exception
    told = hook.Failed(1, True, exception=exception, summary=summary, line=line, slices=slices)
    return RankRun(0, "h", failure=told)


def test_advice_on_proxies_only_while_joining() -> None:
    said = "JAX detected proxy variable(s) in the environment"
    joining, joined = Membership(joining_at=1.0), Membership(joining_at=1.0, joined_at=2.0)
    assert find_failure_hints(RankRun(0, "h", stderr=said, membership=joining))
    assert not find_failure_hints(RankRun(0, "h", stderr=said, membership=joined))


ADVICE = {
    "RuntimeError: jax.distributed.initialize() must be called before any JAX calls": "call jax.distributed.initialize() before",
    "E server_chttp2.cc Failed to add port to server: No address added": "the port is in use",
    "RPC failed: different incarnation": "two processes joined as the same rank",
    "AssertionError: sync_global_devices name mismatch ('a')": "the ranks are at different places",
    "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating": "out of memory: use less per device",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4.00 PiB": "the host is out of memory, not a device",
    "F parse_flags Unknown flags in XLA_FLAGS: --xla_x": "XLA_FLAGS names a flag",
    "RuntimeError: cannot schedule new futures after shutdown": "work was left for threads",
    "ValueError: Number of processes must be defined.": "the hook did not run in this Python",
}  # fmt: skip
# Of public threads: NVIDIA/nccl 525, vllm 18831 and others, jax-ml/jax 29669, 24866; of JAX's source.
ON_GPUS = {
    "INTERNAL: NCCL operation ncclCommInitRankConfig(&comm) failed: invalid usage. Last NCCL "
    "warning(error) log entry (may be unrelated) 'Duplicate GPU detected : rank 1 and rank 0 both on "
    "CUDA device 1000'.": "two ranks of a host use the same GPU",
    "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, "
    "error: No space left on device (28)": "shared memory (/dev/shm) is too small",
    "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device": "shared memory",
    "platform_util.cc:206] unable to create StreamExecutor for CUDA:6: CUDA error: Failed call to "
    "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal": "the rank asks for a GPU that it does not see",
    "Failed call to cuInit: CUDA_ERROR_NOT_INITIALIZED: initialization error": "CUDA does not work",
    "Failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized": "the GPUs are",
    "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered": "a kernel of the program's",
    "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are "
    "present. Platforms present are: cpu": "JAX sees no GPU",
    "Unable to initialize backend 'cuda': INTERNAL: no supported devices found for platform CUDA "
    "(you may need to uninstall the failing plugin package)": "JAX sees no GPU",
}


@pytest.mark.parametrize("said", [*ADVICE, *ON_GPUS])
def test_known_errors_get_a_hint(said: str) -> None:
    [line] = find_failure_hints(RankRun(0, "h", stderr=said))
    assert line.startswith(f"hint: {({**ADVICE, **ON_GPUS})[said]}")


def test_each_text_of_a_known_error_gets_its_hint() -> None:
    """None is taken for another error that comes before it."""
    for error in KnownError:
        for text in error.texts:
            assert find_failure_hints(RankRun(0, "h", stderr=text)) == [f"hint: {error.hint}"]


def test_old_jax_gets_a_hint() -> None:
    hints = {"0.4.35": ["hint: jax 0.4.35 is too old: install 0.6.0 or newer"], "0.6.0": [], "": []}
    for version, hint in hints.items():
        imported = hook.ImportedJax(version, version, "3.11.2")
        run = RankRun(0, "h", stderr="x", membership=Membership(imported=imported))
        assert find_failure_hints(run) == hint


class Broken(str):
    """A hint that nobody can write down."""

    def __format__(self, spec: str) -> str:
        raise ValueError("broken")


def test_failing_hint_does_not_spoil_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownError.HOST_MEMORY, "hint", Broken("x"))
    state = state_of(joined="012")
    ended(state, 1, 1, "MemoryError")
    lines = summarize(state).lines
    assert lines[0] == "rank 1 failed: exit status 1"
    assert not any("hint" in line for line in lines)
    [said] = state.failed_hints
    assert said == "a hint failed: ValueError('broken'); please report this"


# --- stalls ---


def compiled(state: RunState, rank: int, name: str, done: bool = True) -> None:
    say(state, rank, hook.Compiling(name, "train.py:8", "cpu"), 3.0)
    if done:
        say(state, rank, hook.Compiled(), 4.0)


def job(**more: object) -> Job:
    return Job(program=("x",), python="python", chdir="/", **more)  # type: ignore[arg-type]


def test_start_limit_waits_for_ranks_that_can_still_join() -> None:
    """A rank that has ended without joining is no reason to wait for others that have joined."""
    state = state_of(joined="01")
    limits = TimeLimits(job(start_timeout=10.0), state, 0.0)
    assert limits.expire(9.0) is None
    stop = limits.expire(11.0)
    assert stop is not None and stop.status == 124
    limits = TimeLimits(job(start_timeout=10.0), state, 0.0)
    ended(state, 2, 0)
    assert limits.expire(11.0) is None


def test_stall_limit_counts_from_the_last_activity() -> None:
    state = state_of(joined="012")
    limits = TimeLimits(job(stall_timeout=10.0), state, 0.0)
    assert (limits.deadline, limits.expire(9.0)) == (10.0, None)
    state.on_data(Data(1, 1, b""), 9.0)
    assert (limits.deadline, limits.expire(14.0)) == (19.0, None)
    state.on_programs_counted(ProgramsCounted(0, 7), 15.0)
    state.on_programs_counted(ProgramsCounted(0, 7), 16.0)  # no further one
    assert (limits.deadline, limits.expire(24.0)) == (25.0, None)
    compiled(state, 0, "jit_step", done=False)
    say(state, 0, hook.Compiled(), 101.0)
    assert limits.deadline == 111.0
    stop = limits.expire(112.0)
    assert stop is not None and (stop.status, stop.final, stop.needs_stacks) == (124, False, True)
    assert limits.expire(200.0) is None


def test_limits_count_from_the_start_of_the_ranks() -> None:
    state = state_of(joined="012")
    limits = TimeLimits(job(stall_timeout=10.0, timeout=60.0), state, 1002.0)
    assert (state.activity.active_at, limits.deadline) == (1002.0, 1012.0)
    state.on_data(Data(1, 1, b""), 1005.0)
    assert (limits.deadline, limits.expire(1014.0)) == (1015.0, None)
    stop = limits.expire(1015.0)
    assert stop is not None and stop.message.startswith("--stall-timeout: ")
    assert limits.deadline == 1062.0
    stop = limits.expire(1062.0)
    assert stop is not None and stop.message == "--timeout: still running after 60 s"
    assert (limits.expire(1063.0), limits.deadline) == (None, None)


def test_usage_interval_follows_the_stall_limit() -> None:
    every_s = {0.1: 0.1, 8.0: 2.0, 3600.0: 15.0}
    found = {
        limit: compute_usage_period_s(job(stall_timeout=limit), watched=False) for limit in every_s
    }
    assert found == every_s
    assert compute_usage_period_s(job(), watched=False) == 0.0
    assert compute_usage_period_s(job(stall_timeout=8.0), watched=True) == 1.0
    assert compute_usage_period_s(job(stall_timeout=2.0, record=True), watched=False) == 0.5


def usage(cpu_s: float) -> Usage:
    return Usage((RankUsage(0, cpu_s, 1000),))


@pytest.mark.parametrize(("compiles", "cpu_s", "moves"), [
    (True, 0.9, True),
    (True, 0.01, False),  # it waits for another rank
    (False, 0.9, False),  # a step, or NCCL that spins
])  # fmt: skip
def test_processors_count_only_while_a_rank_compiles(
    compiles: bool, cpu_s: float, moves: bool
) -> None:
    state = state_of(joined="012")
    TimeLimits(job(stall_timeout=10.0), state, 0.0)
    state.on_usage(usage(100.0), 1.0)
    state.ranks[0].compilations.under_way = int(compiles)
    before = state.activity.active_at
    state.on_usage(usage(100.0 + cpu_s), 2.0)
    assert (state.activity.active_at > before) == moves


def test_samples_are_thinned_not_kept_without_end() -> None:
    state = state_of(joined="012")
    for second in range(5000):
        state.on_usage(usage(float(second)), float(second))
    samples = state.ranks[0].usage.samples
    assert len(samples) <= 512
    assert (samples[0].at, samples[-1].at) == (0.0, 4999.0)


# --- ranks that part ---


def test_failure_caused_by_the_difference_is_not_the_cause() -> None:
    state = state_of(joined="012")
    state.on_stop_reason(diverged(["rank 1 skipped jit(f)"]), 5.0)
    ended(state, 0, -signal.SIGABRT)
    assert summarize(state).status == 1
    assert first_line(state) == "--verify-spmd: the ranks run different programs"
    assert summarize(state).lines[1] == "rank 1 skipped jit(f)"


UNHOOKED = {
    "all have it": ({0: 0, 1: 3}, {0, 1}, ""),
    "one has not": ({0: 0, 1: 3}, {1}, "the hook did not run in rank 0 (1 of 3)"),
    "neither has": ({0: 0, 1: 3}, set(), "the hook did not run in ranks 0-1 (2 of 3)"),
    "of the culprit other things are told": ({0: 0, 1: 3}, {0}, ""),
    "ended early by a signal": ({1: 3, 0: -signal.SIGTERM}, {1}, ""),
}


@pytest.mark.parametrize("name", UNHOOKED)
def test_ranks_without_the_hook_are_mentioned(name: str) -> None:
    statuses, hooked, line = UNHOOKED[name]
    for expected in (True, False):
        state = state_of()
        state.expects_hooks = expected
        for rank, status in statuses.items():
            state.on_exited(Exited(rank, status, (), "", 1.0, 1, rank in hooked), 9.0)
        lines = "\n".join(summarize(state).lines)
        assert "rank 1 failed: exit status 3" in lines
        assert line in lines or not expected
        assert ("the hook did not run" in lines) == (expected and line != "")
