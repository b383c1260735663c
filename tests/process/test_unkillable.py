"""Processes that end long after they were killed, as those whose GPUs' memory is being freed."""

import subprocess
import sys

import pytest
from jobs import Jobs, alive

pytestmark = pytest.mark.only_linux("a process that is held at its end")

# Anybody may trace it: a tracer can hold a process at its end, in the kernel.
HELD = """
import ctypes, os, sys, time
if os.environ["MCJAX_RESTART"] == "0":
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    print("held", os.getpid(), flush=True)
    time.sleep(1000)
"""
FAILING = """
import os, sys, time
if os.environ["MCJAX_RESTART"] == "0":
    while not os.path.exists("traced"):
        time.sleep(0.01)
    sys.exit(3)
"""
TRACER = """
import ctypes, sys
SEIZE, CONTINUE, TRACE_EXIT = 0x4206, 7, 0x40
pid = int(sys.argv[1])
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
assert libc.ptrace(SEIZE, pid, 0, TRACE_EXIT) == 0
open("traced", "w").close()
sys.stdin.read()  # then it ends, and lets go of what it traces
"""


def test_another_attempt_waits_for_what_was_killed(jobs: Jobs, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "program.py").write_text(
        f"import os\nexec({FAILING!r} if os.environ['JAX_PROCESS_ID'] == '0' else {HELD!r})\n"
        "print('attempt', os.environ['MCJAX_RESTART'], 'ran', flush=True)\n"
    )
    words = ["-n", 2, "--max-restarts", 1, "--grace", "0.1", "program.py"]
    running = jobs.start(*words, cwd=tmp_path, stderr=subprocess.STDOUT)
    running.read_until("held")
    running.read_until("\n")
    [pid] = running.pids("held")
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER, str(pid)], cwd=tmp_path, stdin=subprocess.PIPE
    )
    try:
        said = running.read_until("before another attempt: ")
        assert "waiting up to 60 s for killed processes to end, before another attempt: " in said
        assert alive(pid)
        assert "attempt 1" not in said
    finally:
        tracer.communicate()
    ended = running.finish()
    assert ended.status == 0, ended.stdout
    assert ended.stdout.count("attempt 1 ran") == 2
    assert "restarting in 1 s" in ended.stdout
    assert "could not be killed" not in ended.stdout
