"""`mcjax_launch.session` with JAX in the ranks."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from jobs import LIMIT_S, PROGRAMS, Jobs

import mcjax_launch
from mcjax_launch import CallFailed
from mcjax_launch.features.session.client import progress

RANK = "int(__import__('os').environ['JAX_PROCESS_ID'])"
BEGIN = "import jax\nfrom jax.experimental.multihost_utils import sync_global_devices"


@pytest.fixture
def ranks() -> Iterator[mcjax_launch.Session]:
    with mcjax_launch.session(processes=3, cpu_devices=1, echo=False) as made:
        made.exec(BEGIN)
        yield made


def test_wait_for_a_failed_rank_ends_with_new_ranks(ranks: mcjax_launch.Session) -> None:
    with pytest.raises(CallFailed) as raised:
        ranks.exec("""
            if jax.process_index() == 1:
                raise ValueError("bad batch")
            sync_global_devices("never")
        """)
    told = (
        "rank 1 raised ValueError: bad batch; ranks 0,2 wait for others in sync_global_devices "
        "at <cell 2>:4, which JAX cannot abandon: all ranks have been started again, and their "
        "state is gone"
    )
    assert str(raised.value) == told
    assert (raised.value.unfinished, raised.value.restarted) == ((0, 2), True)
    assert ranks.exec("'jax' in globals()") == [False] * 3


BUSY = (
    "__import__('time').sleep(2)",
    "(jax.jit(lambda x: jax.lax.fori_loop(0, 2000, lambda i, y: y @ y / 300., x))"
    "(jax.numpy.ones((300, 300))).block_until_ready())",
)


def test_global_arrays_stay_after_a_failure_if_the_others_are_busy(
    ranks: mcjax_launch.Session,
) -> None:
    """Ranks that sleep or compute do not wait for the failed one, which is no reason to end them."""
    before = "jax" in sys.modules
    ranks.exec("""
        from jax.sharding import NamedSharding, PartitionSpec as P
        mesh = jax.make_mesh((3,), ("i",))
        x = jax.device_put(jax.numpy.arange(3.0), NamedSharding(mesh, P("i")))
    """)
    for busy in BUSY:
        with pytest.raises(CallFailed) as raised:
            ranks.exec(
                f"if jax.process_index() == 1: raise ValueError('bad batch')\ndone = {busy}, 1"
            )
        assert str(raised.value) == "rank 1 raised ValueError: bad batch"
        assert ranks.exec("done[1]", ranks="0,2") == [1, 1]
    assert ranks.exec("float(x.sum())") == [3.0] * 3
    assert repr(ranks.exec("x", ranks=0)) == "[Array(shape=(3,), dtype=float32)]"
    assert ("jax" in sys.modules) == before


SPREAD = """
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("i",))
x, whole = (jax.device_put(np.arange(6.0), NamedSharding(mesh, P(*axes))) for axes in (["i"], []))
add = jax.jit(lambda value: value.sum())
float(add(x)), float(add(x))
"""


@pytest.mark.every_jax
def test_program_that_needs_other_ranks_is_refused_in_a_call_of_some(
    ranks: mcjax_launch.Session,
) -> None:
    """Also one that has run before, and not one whose arrays are whole in each rank."""
    with pytest.raises(CallFailed, match="the first use of devices needs all ranks, and only"):
        ranks.exec("jax.devices()", ranks="0-1")
    assert ranks.exec(SPREAD) == [(15.0, 15.0)] * 3
    why = r"x spans ranks 0-2, and this runs in rank 1 alone: run it in ranks 0-2, or use x\."
    for text in ("add(x)", "x * 2"):
        with pytest.raises(CallFailed, match=why):
            ranks.exec(text, ranks=1)
    assert ranks.exec("float(add(whole) + whole[3])", ranks="0,2") == [18.0, 18.0]
    assert ranks.exec("float(add(x))") == [15.0] * 3


def test_ctrl_c_in_a_collective_starts_new_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX does not react: the wait is in C++. Ctrl-C comes when the ranks wait there."""
    monkeypatch.setattr(progress, "INTERRUPT_S", LIMIT_S)
    waits = threading.Event()

    def hear(event: mcjax_launch.Event) -> None:
        if "ranks 0-1 wait for it in sync_global_devices" in event.text:
            waits.set()

    def interrupt(job: mcjax_launch.RunningJob) -> None:
        while not waits.wait(1):
            job.send_signal(signal.SIGQUIT)
        os.kill(os.getpid(), signal.SIGINT)

    with mcjax_launch.session(processes=3, cpu_devices=1, echo=False, on_event=hear) as ranks:
        ranks.exec(BEGIN)
        interrupter = threading.Thread(target=interrupt, args=[ranks.job])
        interrupter.start()
        late = "__import__('time').sleep(1000)"
        with pytest.raises(KeyboardInterrupt) as raised:
            ranks.exec(f"{late} if {RANK} == 2 else sync_global_devices('never')")
        interrupter.join()
        [note] = raised.value.__notes__
        where = "ranks 0-1 wait for others in sync_global_devices at <cell 2>:1, which "
        assert note.startswith(where)
        assert note.endswith(": all ranks have been started again, and their state is gone")
        assert ranks.exec("1") == [1] * 3


def test_failure_of_initialize_ends_the_session() -> None:
    late = {"JAX_COORDINATOR_ADDRESS": "nonsense"}
    with (
        pytest.raises(mcjax_launch.LaunchError),
        mcjax_launch.session(processes=2, cpu_devices=1, echo=False, env=late),
    ):
        raise AssertionError("it has begun")


@pytest.mark.nightly
@pytest.mark.timeout(1900)
def test_faults_with_jax_leave_a_usable_session(jobs: Jobs) -> None:
    launcher = [sys.executable, str(PROGRAMS / "faulty_calls.py")]
    ended = jobs.run(30, time.time_ns(), "jax", launcher=launcher, limit=1800)
    assert ended.status == 0, ended.stderr
