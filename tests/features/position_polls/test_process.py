"""A process says where its main thread is, and nothing that it waits for is cut short."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Jobs, eventually
from stand_in_jax import make_stand_in

from mcjax_launch.agent.system import system
from mcjax_launch.machine.system import get_position_signal

# Its own link to an agent is what it gets as standard output.
PROGRAM = """
import ctypes, os, signal, sys, threading
from mcjax_launch.features.position_polls.hook import PositionReporter
from mcjax_launch.wire.codec import to_json

class Link:
    def send(self, message):
        os.write(1, to_json(message).encode() + b"\\n")
        answered.set()

answered = threading.Event()

held = threading.Lock()
held.acquire()
if "alone" not in sys.argv:
    threading.Thread(target=held.acquire, daemon=True).start()
if "deaf" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    threading.Thread(target=held.acquire, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
answering = PositionReporter(Link(), {})
answering.on_join()

def wait():
    print("ready", flush=True)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = (ctypes.c_int * 2)(int(sys.argv[1]), 1)
    ready = libc.poll(fd, 1, 60_000)  # C code that would take a signal for its end
    while not (answered.is_set() or "alone" in sys.argv):
        pass
    return ready

def work():
    print("ready", flush=True)
    while not os.path.exists(sys.argv[1]):
        pass

print((work if sys.argv[1].startswith("/") else wait)(), flush=True)
"""


@contextlib.contextmanager
def started(*words: str, fds: tuple[int, ...] = ()) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", PROGRAM, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=fds) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def asleep(process: "subprocess.Popen[str]") -> None:
    """Wait until it waits in the kernel."""
    while not system.find_blocking_call(process.pid):
        pass


# Asks itself after Python has given back its signal handlers.
ENDING = """
import signal
from mcjax_launch.features.position_polls.hook import PositionReporter
from mcjax_launch.machine.system import get_position_signal

class Last:
    def __del__(self, ask=signal.raise_signal, signum=get_position_signal()):
        ask(signum)

last = Last()
PositionReporter(None, {}).on_join()
"""


@pytest.mark.only_linux("looks at ranks")
def test_ending_process_can_be_asked() -> None:
    assert subprocess.run([sys.executable, "-c", ENDING], check=False).returncode == 0


@pytest.mark.only_linux("looks at ranks")
@pytest.mark.parametrize(("words", "asked"), [((), True), (("alone",), False), (("deaf",), True)])
def test_position_request_does_not_interrupt_blocking_calls(
    words: tuple[str, ...], asked: bool
) -> None:
    """Another thread that waits for a lock gets the signal, if there is one that takes it."""
    mine, its = socket.socketpair()
    with mine, its, started(str(its.fileno()), *words, fds=(its.fileno(),)) as process:
        asleep(process)
        if asked:  # once the other thread waits too
            eventually(
                lambda: system.signal_without_interrupting(process.pid, get_position_signal())
            )
        else:
            assert not system.signal_without_interrupting(process.pid, get_position_signal())
        mine.send(b"x")
        rest = process.communicate()[0].splitlines()
    assert rest[-1] == "1"  # and not -1
    assert [json.loads(line)[0] for line in rest[:-1]] == ["position_polls.ThreadPosition"] * asked


@pytest.mark.only_linux("looks at ranks")
def test_working_process_reports_its_position_at_once(tmp_path: Path) -> None:
    with started(str(tmp_path / "end")) as process:
        assert process.stdout is not None
        assert system.signal_without_interrupting(process.pid, get_position_signal())
        _, (calls, beside) = json.loads(process.stdout.readline())
    assert " in work\n" in calls and calls.startswith("Stack (most recent call first):\n")
    assert beside is False


# Some load while the others wait, each in a call of C, until one has been asked often enough.
UNEVEN = """
import os, signal, sys, threading, time
import jax
from jax._src import array

def load_batch():
    time.sleep(0.02)

threading.Thread(target=array.lock.acquire, daemon=True).start()  # as XLA's
jax.distributed.initialize()
asked = []
signum = signal.SIGRTMIN + 14
answer = signal.getsignal(signum)

def count(*args):
    answer(*args)
    asked.append(args)
    if len(asked) == 25 and len(sys.argv) != 2:
        open("enough", "w").close()

signal.signal(signum, count)
loads = os.environ["JAX_PROCESS_ID"] in sys.argv
while not os.path.exists("enough"):
    load_batch() if loads else array.wait()
"""
WAIT = "import threading\nlock = threading.Lock()\nlock.acquire()\ndef wait(): lock.acquire(timeout=0.02)\n"


@pytest.mark.only_linux("looks at ranks")
@pytest.mark.parametrize("slow", [["1"], ["0", "1", "2"]])
def test_slow_rank_is_reported_during_the_run_and_at_the_end(
    slow: list[str], jobs: Jobs, tmp_path: Path
) -> None:
    """Once while it runs, and at the end; not where all load."""
    make_stand_in(tmp_path / "site-packages")
    (tmp_path / "site-packages" / "jax" / "_src" / "array.py").write_text(WAIT)
    (tmp_path / "train.py").write_text(UNEVEN)
    options = ["-n", 3, "-x", "PYTHONPATH=site-packages", "--preload", "none"]
    options += ["--report", tmp_path / "run.json", "train.py", *slow]
    job = jobs.start(*options, cwd=tmp_path, env={"MCJAX_TEST_TIME_SCALE": "0.1"})
    if slow == ["1"]:
        assert job.process.stderr is not None
        while b" is slow: " not in job.err:
            piece = os.read(job.process.stderr.fileno(), 65536)
            assert piece, job.err
            job.err += piece
        (tmp_path / "enough").touch()
    ended = job.finish(limit=120)
    assert ended.status == 0, ended.stderr
    attempt = json.loads((tmp_path / "run.json").read_text())["attempts"][0]
    for rank in attempt["ranks"]:
        does = "elsewhere" if str(rank["rank"]) in slow else "jax"
        assert does in [what for _, what, _ in rank["looks"]]
    named = [line for line in ended.report.splitlines() if " slow: " in line]
    assert [entry["rank"] for entry in attempt["slow"]] == ([1] if slow == ["1"] else [])
    assert len(named) == 2 * len(attempt["slow"])
    for line in named:
        assert line.startswith("rank 1 is slow: the others waited ")
        assert "; it was in load_batch at train.py:7 (" in line
