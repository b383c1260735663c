"""A process says that its main thread runs, and nothing that it waits for is cut short."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import eventually

from mcjax_launch.agent.system import system
from mcjax_launch.machine.system import get_liveness_signal

# Its own link to an agent is what it gets as standard output.
PROGRAM = """
import ctypes, os, signal, sys, threading
from mcjax_launch.features.liveness.hook import LivenessReporter
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
answering = LivenessReporter(Link(), {})
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
from mcjax_launch.features.liveness.hook import LivenessReporter
from mcjax_launch.machine.system import get_liveness_signal

class Last:
    def __del__(self, ask=signal.raise_signal, signum=get_liveness_signal()):
        ask(signum)

last = Last()
LivenessReporter(None, {}).on_join()
"""


@pytest.mark.only_linux("looks at ranks")
def test_ending_process_can_be_asked() -> None:
    assert subprocess.run([sys.executable, "-c", ENDING], check=False).returncode == 0


@pytest.mark.only_linux("looks at ranks")
@pytest.mark.parametrize(("words", "asked"), [((), True), (("alone",), False), (("deaf",), True)])
def test_poll_does_not_interrupt_blocking_calls(words: tuple[str, ...], asked: bool) -> None:
    """Another thread that waits for a lock gets the signal, if there is one that takes it."""
    mine, its = socket.socketpair()
    with mine, its, started(str(its.fileno()), *words, fds=(its.fileno(),)) as process:
        asleep(process)
        if asked:  # once the other thread waits too
            eventually(
                lambda: system.signal_without_interrupting(process.pid, get_liveness_signal())
            )
        else:
            assert not system.signal_without_interrupting(process.pid, get_liveness_signal())
        mine.send(b"x")
        rest = process.communicate()[0].splitlines()
    assert rest[-1] == "1"  # and not -1
    assert [json.loads(line)[0] for line in rest[:-1]] == ["liveness.MainThreadRuns"] * asked


@pytest.mark.only_linux("looks at ranks")
def test_working_process_answers_at_once(tmp_path: Path) -> None:
    with started(str(tmp_path / "end")) as process:
        assert process.stdout is not None
        assert system.signal_without_interrupting(process.pid, get_liveness_signal())
        assert json.loads(process.stdout.readline())[0] == "liveness.MainThreadRuns"
