"""From the death of one rank to the last process gone."""

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial

from benchmarks.bench import PYTHON, Bench, Way
from benchmarks.measure import Grid, Measure
from benchmarks.peers import LOOP
from benchmarks.processes import Marked, free_port

# Each says its pid when it runs; the third one to come is the one that dies.
_RANK = "echo $$; exec sleep 1000"
_RAISES = """
import os, sys
import jax
from jax.experimental import multihost_utils
address, count, number = sys.argv[1:] if len(sys.argv) > 1 else (None, None, None)
if address is None:
    number = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") \\
        or os.environ.get("RANK") or os.environ.get("PARALLEL_SEQ") or os.environ["SLURM_PROCID"]
    address, count = os.environ["BENCH_COORDINATOR"], "4"
    number = int(number) - ("PARALLEL_SEQ" in os.environ)
# Not by Open MPI, for which JAX needs mpi4py.
jax.distributed.initialize(
    address, int(count), int(number), cluster_detection_method="deactivate")
multihost_utils.sync_global_devices("all")
if int(number) == 1:
    open(os.environ["BENCH_RAISED"], "w").close()
    raise ValueError("bad batch")
multihost_utils.sync_global_devices("never")
"""
_LIMIT_S = 15.0
#: JAX itself gives up after 300 s, for which only --to-the-end waits.
JAX_LIMIT_S, _JAX_END_S = 30.0, 400.0


def death(bench: Bench) -> list[Measure | Grid]:
    """Measure the end of a job after a rank is killed, or raises while JAX delays its exit."""
    argv = ["bash", "-c", _RANK]
    ways: dict[str, Way] = bench.of_each(lambda ours: _killed([*ours, "-n", "4", *argv]))
    ours = Measure(
        "death of one of 4 ranks to the last process gone", "ms", bench.in_turn(21, ways)
    )
    others: dict[str, Way] = {}
    for peer in bench.peers:
        if peer.name != LOOP:  # which lets them run on
            command = (peer.prefixed or peer.command)(4, argv, bench.folder)  # these show at once
            others[peer.name] = partial(_killed, command)
    together = {**ours.values, **bench.in_turn(2, others)}
    return [Measure(ours.title, ours.unit, together), _exceptions(bench)]


def _killed(command: Sequence[str]) -> float:
    marked = Marked()
    with subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=marked.environ,
    ) as job:
        assert job.stdout is not None
        try:
            pids: list[int] = []
            while len(pids) < 4:
                ready = select.select([job.stdout], [], [], _LIMIT_S)[0]
                line = job.stdout.readline() if ready else b""
                if not line:
                    raise ValueError("the ranks did not start")
                pids += map(int, re.findall(rb"\d+$", line.rstrip()))
            began = time.perf_counter()
            os.kill(pids[2], signal.SIGKILL)
            if marked.silent_after(_LIMIT_S) is None:
                raise ValueError(f"others still run after {_LIMIT_S:g} s")
            return (time.perf_counter() - began) * 1e3
        finally:
            marked.kill()


def _exceptions(bench: Bench) -> Grid:
    program = bench.write("raises.py", _RAISES)
    coordinates = ["{coordinator}", "{num_processes}", "{process_id}"]
    commands = {
        name: [*ours, "-n", "4", program, *coordinates] for name, ours in bench.launchers.items()
    }
    address = f"127.0.0.1:{free_port()}"
    loop = f"for i in 0 1 2 3; do {PYTHON} {program} {address} 4 $i & done; wait"
    for peer in bench.peers:
        commands[peer.name] = peer.command(4, [PYTHON, program], bench.folder)
        if peer.name == LOOP:
            commands[peer.name] = ["bash", "-c", loop]
    row = {
        name: _raised(bench, command, address)
        for name, command in commands.items()
        if "honcho" not in name  # gives its processes no number
    }
    return Grid("exception in one of 4 JAX ranks", {"to the last process gone, exit status": row})


def _raised(bench: Bench, command: Sequence[str], address: str) -> str:
    marked, mark = Marked(), bench.folder / "raised"
    mark.unlink(missing_ok=True)
    env = {
        **marked.environ,
        "JAX_PLATFORMS": "cpu",
        "BENCH_COORDINATOR": address,
        "BENCH_RAISED": str(mark),
    }
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
    ) as job:
        try:
            began = time.perf_counter()
            while not mark.exists() and job.poll() is None:
                if time.perf_counter() > began + JAX_LIMIT_S:
                    return "did not start"
                time.sleep(0.01)
            if not mark.exists():
                return f"ended early, {job.wait()}"
            limit_s = _JAX_END_S if bench.to_the_end else JAX_LIMIT_S
            seconds = marked.silent_after(limit_s)
            if seconds is None:
                return f"over {limit_s:g} s"
            return f"{seconds:.1f} s, {job.wait()}"
        finally:
            marked.kill()
