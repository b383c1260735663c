"""On real JAX: what a generic launcher does not do for it."""

import math
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import jax
import psutil
import pytest
from jobs import LAUNCHER, PROGRAMS, Jobs


@pytest.mark.every_jax
@pytest.mark.parametrize(("n", "d"), [(4, 2), (1, 8)])
def test_toy_computes_the_right_sum(jobs: Jobs, n: int, d: int, tmp_path: Path) -> None:
    ended = jobs.run("-n", n, "-d", d, "--log-dir", tmp_path, PROGRAMS / "toy.py")
    assert ended.status == 0, ended.stderr
    total = sum(math.sin(number) for number in range(8 * n))  # -0.12399 in the guide
    for rank in range(n):
        assert f"[{rank}] process {rank} of {n}: sum {total:.6f}"[:-2] in ended.stdout
    shown, logged = ended.stdout.count("\n"), logs(tmp_path, "out").count("\n")
    assert shown == n * (d + 1)
    assert logged >= shown  # but for Gloo's lines
    assert ended.report.splitlines() == [f"logs: {tmp_path}"]


GUIDES = {
    "toy.py": (["-d", 2], "process={rank} got result: -0.1239"),
    "gpu_example.py": ([], "process id = {rank}"),
}


@pytest.mark.parametrize("name", GUIDES)
def test_the_guides_programs_need_no_arguments(jobs: Jobs, name: str) -> None:
    options, told = GUIDES[name]
    ended = jobs.run("-n", 4, *options, PROGRAMS / "guide" / name)
    assert ended.status == 0, ended.stderr
    assert [f"[{rank}] {told.format(rank=rank)}" in ended.stdout for rank in range(4)] == [True] * 4


def test_exported_number_of_devices_is_kept(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, PROGRAMS / "guide" / "toy.py", env={"JAX_NUM_CPU_DEVICES": "2"})
    assert ended.status == 0, ended.stderr


def test_failed_assertion_on_devices_gets_a_hint(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, PROGRAMS / "guide" / "toy.py")
    assert ended.status == 1
    assert "hint: the job has 4 devices, 1 in each rank; -d 2 gives 8" in ended.report


def logs(folder: Path, end: str) -> str:
    """All that the ranks have written to one stream."""
    return "".join(path.read_text() for path in sorted(folder.glob(f"*.{end}")))


ORPHANS = """
import os, sys, time, jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
if jax.process_index() == 0: os.kill(os.getpid(), 9)
time.sleep(60)
"""


@pytest.mark.parametrize("verbose", [False, True])
def test_messages_of_victims_are_hidden_unless_verbose(
    jobs: Jobs, tmp_path: Path, verbose: bool
) -> None:
    options = ["-n", 3, "--log-dir", tmp_path, *(["-v"] if verbose else [])]
    ended = jobs.run(*options, sys.executable, "-c", ORPHANS)
    assert ended.status == 137
    said = logs(tmp_path, "err")
    assert said.count("Terminating process because") == 2
    shown = [line for line in ended.stderr.splitlines() if line.startswith("[")]
    assert len(shown) == (said.count("\n") if verbose else 0)
    note = f"hid {said.count(chr(10))} lines of follow-on errors"
    assert (note in ended.report) != verbose


OUTLIVES = """
import atexit, os, signal, time, jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
if jax.process_index() == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
multihost_utils.sync_global_devices("started")
if jax.process_index() == 1:
    atexit.register(time.sleep, 60)
    raise ValueError("bad batch")
time.sleep(60)
"""


def test_failed_rank_that_outlives_other_ranks_is_the_cause(jobs: Jobs, tmp_path: Path) -> None:
    program = tmp_path / "outlives.py"
    program.write_text(OUTLIVES)
    ended = jobs.run("-n", 2, "--grace", 50, "--log-dir", tmp_path, program)
    assert ended.status == 1
    assert "Terminating process because" in (tmp_path / "1.err").read_text()
    shown = [line for line in ended.stderr.splitlines() if line.startswith("[")]
    assert shown[0] == "[1] Traceback (most recent call last):"
    assert shown[-1] == "[1] ValueError: bad batch"


BEREAVED = """
import os, jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
if jax.process_index() == 1: os.kill(os.getpid(), 9)
multihost_utils.sync_global_devices("waiting")
"""


@pytest.mark.every_jax
def test_tracebacks_of_victims_go_to_the_logs(jobs: Jobs, tmp_path: Path) -> None:
    """They go to the logs; the report says where the ranks stood."""
    program = tmp_path / "bereaved.py"
    program.write_text(BEREAVED)
    ended = jobs.run("-n", 3, "-d", 1, "--log-dir", tmp_path / "logs", program)
    assert ended.status == 137
    assert "Traceback" in logs(tmp_path / "logs", "err")
    assert [line for line in ended.stderr.splitlines() if line.startswith("[")] == []
    assert f" failed as a consequence at {program}:7 in <module>" in ended.report


def test_the_launchers_own_term_is_hidden(jobs: Jobs, tmp_path: Path) -> None:
    options = ["-n", 3, "--grace", "1", "--log-dir", tmp_path]
    ended = jobs.run(*options, PROGRAMS / "fail.py", "raise")
    assert "SIGTERM caught" in logs(tmp_path, "err")
    assert "SIGTERM caught" not in ended.stderr
    assert "[1] ValueError: bad batch" in ended.stderr


WAYS = {
    "guide": ["guide", "{process_id}", "{num_processes}"],  # with an address of its own
    "argv": ["argv", "{coordinator}", "{process_id}", "{num_processes}"],
    "from import": ["from import"],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_pass_coordinates_works(jobs: Jobs, way: str) -> None:
    ended = jobs.run("-n", 2, "-d", 1, PROGRAMS / "coordinates.py", *WAYS[way])
    assert ended.status == 0, ended.stderr
    for rank in range(2):
        assert f"[{rank}] process {rank} of 2 with 2 devices" in ended.stdout


ROUTES = {
    "shell script": ["bash", "-c", f"true; {sys.executable} coordinates.py nothing; exit $?"],
    "clean environment of os": [sys.executable, "-c", "import runpy, sys; sys.argv[1:] = ['nothing']; runpy.run_path('coordinates.py')"],
    "pytest": [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "coordinates.py::test_under_pytest"],
    "uv run": ["uv", "run", "--no-project", "--offline", "--python", sys.executable, "coordinates.py", "nothing"],
    "subprocess": [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'coordinates.py', 'nothing'], close_fds=True))"],
}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_bare_initialize_works_below_another_program(jobs: Jobs, route: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # pytest imports the program with its own argv.
    ended = jobs.run("-n", 2, "-d", 1, *ROUTES[route], cwd=PROGRAMS, env={"PATH": path})
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "process 1 of 2" in ended.stdout


FAILURES = {
    "raise": (1, "rank 1 failed: ValueError: bad batch"),
    "SIGKILL": (137, "rank 1 failed: killed by SIGKILL (an external kill -9"),
}


@pytest.mark.every_jax
@pytest.mark.parametrize("way", FAILURES)
def test_failure_ends_the_job_with_its_status(jobs: Jobs, way: str) -> None:
    """JAX alone needs 100 to 305 s for it and ends with 134."""
    status, words = FAILURES[way]
    ended = jobs.run("-n", 3, "--grace", "1", PROGRAMS / "fail.py", way)
    assert ended.status == status, ended.stderr
    assert words in ended.report
    assert ended.seconds < 30


@pytest.mark.parametrize("way", ["SIGKILL", "raise"])
def test_failure_of_the_coordinators_rank_is_the_cause(jobs: Jobs, way: str) -> None:
    ended = jobs.run("-n", 3, "--grace", "1", PROGRAMS / "fail.py", way, 0)
    assert ended.status == {"SIGKILL": 137, "raise": 1}[way]
    assert "rank 0 failed" in ended.report


def test_atexit_handlers_run_before_the_end(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--grace", "1", PROGRAMS / "fail.py", "atexit")
    assert ended.status == 1
    assert "[1] saved in atexit" in ended.stdout


def test_rank_may_end_well_before_other_ranks(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, PROGRAMS / "early.py", 3)
    assert ended.status == 0, ended.stderr
    assert "[0] slow one done" in ended.stdout


def test_no_rank_gives_up_on_a_slow_peer_at_exit(jobs: Jobs) -> None:
    """The timeouts that JAX really gets, of the service and of each client."""
    program = """
import jax, jax._src.distributed as d
lib = getattr(d, '_jax', None) or d.xla_extension
def spy(name):
    real = getattr(lib, name)
    def call(*args, **kwargs):
        print(name, kwargs.get('shutdown_timeout'))
        return real(*args, **kwargs)
    call.__doc__ = real.__doc__
    setattr(lib, name, call)
spy('get_distributed_runtime_client')
spy('get_distributed_runtime_service')
jax.distributed.initialize()
"""
    ended = jobs.run("-n", 2, sys.executable, "-c", program)
    assert ended.status == 0, ended.stderr
    week = 7 * 24 * 3600
    assert ended.stdout.count(f"get_distributed_runtime_client {week}\n") == 2
    assert ended.stdout.count(f"get_distributed_runtime_service {week}\n") == 1


def test_term_reaches_the_preemption_service(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, PROGRAMS / "preempted.py")
    running.read_until("training", 2)
    running.signal(signal.SIGTERM)
    ended = running.finish()
    assert ended.status == 143
    assert ended.stdout.count("saved") == 2
    assert "SIGTERM caught" in ended.stderr  # the user's own
    assert "both ranks: exited with 0" in ended.report


ON_AND_ON = """
import time, jax
jax.distributed.initialize()
while True:
    print("step", flush=True)
    time.sleep(0.1)
"""


def test_head_does_not_wait_for_the_preemption_service(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, sys.executable, "-c", ON_AND_ON)
    running.read_until("step", 4)
    assert running.process.stdout is not None and running.process.stderr is not None
    running.process.stdout.close()
    assert running.process.wait(20) == 141  # not after the 30 s that a TERM gives
    assert running.process.stderr.read() == b"mcjax-launch: stopped: the reader of stdout is gone\n"


def test_grace_is_mentioned_if_jax_catches_sigterm(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, "--grace", "1", sys.executable, "-c", ON_AND_ON)
    running.read_until("step", 4)
    running.signal(signal.SIGTERM)
    ended = running.finish()
    assert ended.status == 143
    assert ended.report.splitlines()[0] == (
        "SIGTERM forwarded to the ranks, where JAX catches it; 1 s to exit (--grace), "
        "send it again to kill them now"
    )


BARRED = """
import os, signal, time, jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
rank = jax.process_index()
signal.signal(signal.SIGTERM, lambda *_: os._exit(3) if rank == 1 else exit(0))
multihost_utils.sync_global_devices("ready")
print("ready", flush=True)
while True: time.sleep(0.1)
"""


def test_ranks_that_wait_for_an_ended_rank_get_no_grace(jobs: Jobs) -> None:
    running = jobs.start("-n", 3, "-d", 1, sys.executable, "-c", BARRED)
    running.read_until("ready", 3)
    running.signal(signal.SIGTERM)
    ended = running.finish(20)  # not after 30 s
    assert ended.status == 143
    assert "1 failed after SIGTERM: exit status 3" in ended.report


PROXIED = """
import os, sys
os.environ.update(pair.split("=", 1) for pair in sys.argv[1:])
import jax
jax.distributed.initialize()
checks = getattr(jax.config, "jax_check_proxy_envs", True)
print("checks" if checks else "does not check", os.environ.get("no_proxy"))
"""


def test_no_proxy_warning_appears_without_a_proxy(jobs: Jobs) -> None:
    """Nor is JAX's own check of them turned off."""
    run = partial(jobs.run, "-n", 1, "-d", 1, sys.executable, "-c", PROXIED)
    ended = run()
    assert (ended.status, ended.stdout, ended.stderr) == (0, "[0] checks None\n", "")
    proxy = "https_proxy=http://127.0.0.1:9"
    for ended in (run(proxy), run(env=dict([proxy.split("=", 1)]))):
        assert (ended.status, ended.stdout) == (0, "[0] checks 127.0.0.1\n")
        assert "JAX detected proxy variable(s)" in ended.stderr


def test_local_job_listens_on_loopback_only(jobs: Jobs) -> None:
    """And for the coordinator on no port at all."""
    ended = jobs.run("-n", 2, "-d", 1, PROGRAMS / "listening.py")
    assert ended.status == 0, ended.stderr
    for rank in range(2):
        assert f"[{rank}] listens on ['127.0.0.1']" in ended.stdout
        assert f"[{rank}] the coordinator has a port: False" in ended.stdout


def outside_address() -> str:
    """An address of this machine that is not loopback; "" if it has none."""
    found = (a for addresses in psutil.net_if_addrs().values() for a in addresses)
    inet = (a.address for a in found if a.family == socket.AF_INET)
    return next((a for a in inet if not a.startswith("127.")), "")


def test_collectives_listen_on_loopback_despite_the_hostname(jobs: Jobs) -> None:
    """Gloo would listen there."""
    if os.geteuid() or not outside_address():
        pytest.skip("needs root and an address other than loopback")
    named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', outside_address()]
    launcher = [*named, *LAUNCHER]
    ended = jobs.run("-n", 2, "-d", 1, PROGRAMS / "listening.py", launcher=launcher)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("listens on ['127.0.0.1']") == 2
    elsewhere = ["--coordinator", outside_address(), PROGRAMS / "listening.py"]
    ended = jobs.run("-n", 2, "-d", 1, *elsewhere, launcher=launcher)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count(f"listens on ['{outside_address()}']") == 2
    assert "[0] the coordinator has a port: True" in ended.stdout


def test_cpu_transfers_work(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 2, "--cpu-transfers", PROGRAMS / "transfer.py")
    if ended.status == 0:
        assert "[1] process 1 holds 4160 of the result" in ended.stdout
    else:  # an old jax
        assert not hasattr(jax.config, "jax_cross_host_transfer_socket_address")
        assert "--cpu-transfers: not supported by jax" in ended.report


def test_process_can_end_after_the_sender_of_its_data(jobs: Jobs, tmp_path: Path) -> None:
    """JAX alone waits for ever there, when Python destroys its client."""
    ended = jobs.run("-n", 2, "-d", 1, "--cpu-transfers", PROGRAMS / "transferred.py", tmp_path)
    assert ended.status == 0, ended.stderr
    assert (ended.stdout.count("moved 0"), ended.stdout.count("moved 1")) == (1, 1)
    assert ended.report == ""


def test_transfer_without_its_option_gets_a_hint(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 2, "-d", 1, PROGRAMS / "transferred.py", tmp_path)
    assert ended.status == 1
    assert "hint: add --cpu-transfers to " in ended.report


@pytest.mark.every_jax
def test_stacks_of_ranks_blocked_in_a_collective(jobs: Jobs) -> None:
    running = jobs.start("-n", 3, PROGRAMS / "waiting.py", "collective")
    running.read_until("ready", 3)
    running.signal(signal.SIGQUIT)
    assert running.process.stderr is not None
    seen = b""
    while seen.count(b"waiting.py") < 3 or b"never_arrives" not in seen:
        seen += os.read(running.process.stderr.fileno(), 65536)
    running.kill_now()
    assert running.finish().status == 130


def test_start_timeout_names_missing_ranks(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n", 3, "--grace", "1", "--start-timeout", "8s", PROGRAMS / "waiting.py", "initialize"
    )
    assert ended.status == 124
    assert "--start-timeout: not all ranks have joined after 8 s" in ended.report
    assert "in never_arrives" in ended.report  # its stack
    assert "rank 1: never called initialize()\n" in ended.report
    assert "ranks 0,2: waiting in initialize()" in ended.report


def test_no_hook_leaves_jax_unchanged(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--no-hook", PROGRAMS / "coordinates.py", "nothing")
    assert ended.status == 1
    assert "Number of processes must be defined" in ended.stderr


def test_coordinates_in_argv_work_without_the_hook(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--no-hook", PROGRAMS / "coordinates.py", *WAYS["argv"])
    assert ended.status == 0, ended.stderr
