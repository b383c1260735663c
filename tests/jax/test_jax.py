"""On real JAX: what a generic launcher does not do for it."""

import os
import re
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
from jobs import LAUNCHER, PROGRAMS, Jobs


@pytest.mark.every_jax
def test_toy_computes_the_right_sum(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 4, "-d", 2, "--log-dir", tmp_path, PROGRAMS / "toy.py")
    assert ended.status == 0, ended.stderr
    for rank in range(4):
        assert f"[{rank}] process {rank} of 4: sum -0.1239" in ended.stdout  # as in the guide
    shown, logged = ended.stdout.count("\n"), logs(tmp_path, "out").count("\n")
    assert shown == 4 * (2 + 1), ended.stdout
    assert logged >= shown  # but for Gloo's lines
    assert ended.report.splitlines() == [f"logs: {tmp_path}"]


def test_the_guides_program_for_gpus_needs_no_arguments(jobs: Jobs) -> None:
    """README shows its other program."""
    ended = jobs.run("-n", 2, PROGRAMS / "guide" / "gpu_example.py")
    assert ended.status == 0, ended.stderr
    assert [f"[{rank}] process id = {rank}" in ended.stdout for rank in range(2)] == [True] * 2


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


def test_messages_of_victims_are_hidden(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 2, "--log-dir", tmp_path, sys.executable, "-c", ORPHANS)
    assert ended.status == 137
    said = logs(tmp_path, "err")
    assert said.count("Terminating process because") == 1
    assert [line for line in ended.stderr.splitlines() if line.startswith("[")] == []
    assert f"hid {said.count(chr(10))} lines of follow-on errors" in ended.report


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
    ended = jobs.run("-n", 2, "-d", 1, "--log-dir", tmp_path / "logs", program)
    assert ended.status == 137
    assert "Traceback" in logs(tmp_path / "logs", "err")
    assert [line for line in ended.stderr.splitlines() if line.startswith("[")] == []
    assert f" failed as a consequence at {program}:7 in <module>" in ended.report


WAYS = {
    "guide": ([], ["{process_id}", "{num_processes}"]),  # with an address of its own
    "argv": (["--no-hook"], ["{coordinator}", "{process_id}", "{num_processes}"]),
    "from import": ([], []),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_pass_coordinates_works(jobs: Jobs, way: str) -> None:
    options, words = WAYS[way]
    ended = jobs.run("-n", 2, "-d", 1, *options, PROGRAMS / "coordinates.py", way, *words)
    assert ended.status == 0, ended.stderr
    for rank in range(2):
        assert f"[{rank}] process {rank} of 2 with 2 devices" in ended.stdout


@pytest.mark.every_jax
@pytest.mark.parametrize(
    ("way", "culprit", "status", "words"),
    [
        ("raise", 1, 1, "ValueError: bad batch"),
        ("raise", 0, 1, "ValueError: bad batch"),
        ("SIGKILL", 1, 137, "killed by SIGKILL (kill -9 by some process"),
        ("SIGKILL", 0, 137, "killed by SIGKILL (kill -9 by some process"),
    ],
    ids=["raise", "raise at coordinator", "SIGKILL", "coordinator"],
)
def test_failure_ends_the_job_with_its_status(
    jobs: Jobs, tmp_path: Path, way: str, culprit: int, status: int, words: str
) -> None:
    """JAX alone needs 100 to 305 s for it and ends with 134."""
    options = ["-n", 2, "--grace", "2", "--log-dir", tmp_path]
    ended = jobs.run(*options, PROGRAMS / "fail.py", way, culprit)
    assert ended.status == status, ended.stderr
    assert f"rank {culprit} failed: {words}" in ended.report
    assert ended.seconds < 30
    if way == "raise":
        assert f"[{culprit}] saved in atexit" in ended.stdout
        assert "SIGTERM caught" not in ended.stderr  # it is the launcher's own
        if culprit == 0:  # whose service keeps rank 1 alive until JAX says so, within a second
            assert "SIGTERM caught" in logs(tmp_path, "err")


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
    assert ended.report.startswith(
        "SIGTERM sent to the ranks, where JAX catches it: they have 30 s to"
    )


def test_head_does_not_wait_for_the_preemption_service(jobs: Jobs) -> None:
    on_and_on = "import jax, time\njax.distributed.initialize()\nwhile True: print('step', flush=True); time.sleep(0.1)"
    running = jobs.start("-n", 2, sys.executable, "-c", on_and_on)
    running.read_until("step", 4)
    assert running.process.stdout is not None and running.process.stderr is not None
    running.process.stdout.close()
    assert running.process.wait(20) == 141  # not after the 30 s that a TERM gives
    assert running.process.stderr.read() == b"mcjax-launch: stopped: the reader of stdout is gone\n"


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
    running = jobs.start("-n", 2, "-d", 1, sys.executable, "-c", BARRED)
    running.read_until("ready", 2)
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
        import jax

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
    running = jobs.start("-n", 2, PROGRAMS / "waiting.py", "collective")
    running.read_until("ready", 2)
    running.signal(signal.SIGQUIT)
    assert running.process.stderr is not None
    seen = b""
    while seen.count(b"waiting.py") < 2 or b"never_arrives" not in seen:
        seen += os.read(running.process.stderr.fileno(), 65536)
    running.kill_now()
    assert running.finish().status == 130


def test_start_timeout_names_missing_ranks(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n", 2, "--grace", "1", "--start-timeout", "15s", PROGRAMS / "waiting.py", "initialize"
    )
    assert ended.status == 124
    assert "--start-timeout: not all ranks have joined after 15 s" in ended.report
    assert "in never_arrives" in ended.report  # its stack
    assert re.search(
        r"rank 1 has not called initialize\(\), in never_arrives at \S*waiting.py:\d+; "
        r"rank 0 waits for it in initialize\(\) at \S*waiting.py:\d+\n",
        ended.report,
    )


def test_no_hook_leaves_jax_unchanged(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--no-hook", PROGRAMS / "coordinates.py", "nothing")
    assert ended.status == 1
    assert "Number of processes must be defined" in ended.stderr
