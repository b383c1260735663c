"""Ranks that the kernel ends at a limit (ulimit): which one, and where they were."""

import signal
import socket
from pathlib import Path

import pytest
from jobs import Jobs, shell_script

from mcjax_launch.agent.hook_server import HookConnection

SPINS = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (1, 20))
def spin():
    while True: pass
spin()
"""
HANDLES = """
import resource, signal, sys
def told(*_):
    print("told", flush=True)
    sys.exit(0)
signal.signal(signal.SIGXCPU, told)
resource.setrlimit(resource.RLIMIT_CPU, (1, 20))
while True: pass
"""
pytestmark = pytest.mark.only_linux("the limits of an ended process")


@pytest.mark.every_jax
@pytest.mark.parametrize("preload", ["none", "json"])
def test_rank_at_its_processor_time_limit_fails_with_its_position(
    jobs: Jobs, tmp_path: Path, preload: str
) -> None:
    (tmp_path / "spins.py").write_text(SPINS)
    ended = jobs.run("-n", 1, "--preload", preload, tmp_path / "spins.py")
    assert ended.status == 128 + signal.SIGXCPU
    first, place, *_ = ended.report.splitlines()
    limit = "it has used up its 1 s of processor time; raise ulimit -t"
    assert first == f"rank 0 failed: killed by SIGXCPU ({limit})"
    assert place == f"at {tmp_path}/spins.py:5 in spin: while True: pass"


def test_hard_limit_of_processor_time_is_named(jobs: Jobs, tmp_path: Path) -> None:
    """As ulimit sets it: the kernel sends a SIGKILL at once."""
    script = shell_script(tmp_path / "run.sh", "ulimit -t 1; exec sh -c 'while :; do :; done'")
    ended = jobs.run("-n", 1, script)
    assert ended.status == 128 + signal.SIGKILL
    limit = "it has used up its 1 s of processor time; raise ulimit -t"
    assert ended.report.startswith(f"rank 0 failed: killed by SIGKILL ({limit})\n")


def test_file_size_limit_is_named(jobs: Jobs, tmp_path: Path) -> None:
    script = shell_script(tmp_path / "run.sh", "ulimit -f 1; exec head -c 99999 /dev/zero > file")
    ended = jobs.run("-n", 1, script, cwd=tmp_path)
    assert ended.status == 128 + signal.SIGXFSZ
    size = (tmp_path / "file").stat().st_size
    limit = f"a file has reached the limit of {size} bytes; raise ulimit -f"
    assert ended.report.startswith(f"rank 0 failed: killed by SIGXFSZ ({limit})\n")


def test_program_that_handles_the_signal_continues(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "handles.py").write_text(HANDLES)
    ended = jobs.run("-n", 1, tmp_path / "handles.py")
    assert (ended.status, ended.stdout, ended.stderr) == (0, "[0] told\n", "")


@pytest.mark.parametrize("asked", [False, True])
def test_unrequested_stacks_count_as_a_crash(asked: bool) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        hook = HookConnection(ours)
        hook.asked_all = asked
        hook.add_stack_line("Stack (most recent call first):")  # the main thread's alone, asked for
        hook.add_stack_line('  File "<string>", line 1 in before')
        for name in ("helper", "main"):
            hook.add_stack_line(f"Thread 0x{name} (most recent call first):")
            hook.add_stack_line(f'  File "<string>", line 2 in {name}')
        assert (" in main" in hook.pop_crash_stack()) == (not asked)
        assert hook.pop_crash_stack() == ""
        hook.close()
