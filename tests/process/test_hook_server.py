"""The agent's end of the hooks, against processes that send anything at all."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import eventually

import mcjax_launch
from mcjax_launch.agent.hook_server import HookConnection, HookServer
from mcjax_launch.agent.stacks import StackDump
from mcjax_launch.hook.agent_link import AgentLink
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire.codec import to_json
from mcjax_launch.wire.hook_messages import (
    Answering,
    Compiled,
    Compiling,
    Failed,
    Hello,
    HookMessage,
    ImportedJax,
    Joined,
    Joining,
    Leaving,
    PythonEnded,
)
from mcjax_launch.wire.messages import FromHook, Stacks
from mcjax_launch.wire.source_lines import MAIN_THREAD

pytestmark = pytest.mark.quick

HELLO = Hello(100, "1")
COMPILING = Compiling("jit_step", "train.py:9", "cpu")


class Server:
    """A server for ranks 0 to 3, rank N's own process being 100 N."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "hook")
        self.received: list[FromHook] = []
        self.processes: list[Process] = []
        self.on_said: Callable[[HookConnection], object] = lambda hook: None
        self.hooks = HookServer(
            self.path,
            Loop(),
            lambda pid, rank: pid == 100 * rank,
            self._take,
            lambda hook: None,
        )
        self.hooks.ranks = range(4)

    def _take(self, hook: HookConnection, said: FromHook) -> None:
        self.received.append(said)
        self.on_said(hook)

    def connect(self, *messages: HookMessage) -> "Process":
        process = Process(self.path)
        self.processes.append(process)
        for message in messages:
            process.say(message)
        return process

    @contextmanager
    def start(self, program: str) -> "Iterator[subprocess.Popen[bytes]]":
        """Start a real process with a hook that runs this text as rank 1, and prints `ready`."""
        site = Path(mcjax_launch.__file__).parent / "hook" / "site"
        settings = {
            "PYTHONPATH": str(site),
            "MCJAX_HOOK_SOCKET": self.path,
            "JAX_PROCESS_ID": "1",
        }
        command = [sys.executable, "-c", program]
        env = {**os.environ, **settings}
        with subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"ready\n"
                yield process
            finally:
                process.kill()

    def collect(self) -> Stacks:
        """Collect the stacks of rank 1's process as an agent does, again if it is starved."""
        collected: list[Stacks] = []
        dump = StackDump(collected.extend)
        while not collected:
            self.read()
            [hook] = self.hooks.list_stack_sources()  # none has ended
            dump.begin([hook], time.monotonic(), all_threads=True)
            while dump.deadline is not None:
                self.read()
                dump.expire(time.monotonic())
                time.sleep(0.001)
        [stacks] = collected
        return stacks

    def has_answering_thread(self) -> bool:
        self.read()
        return any(hook.answering for hook in self.hooks.list_stack_sources())

    def read(self) -> list[HookMessage]:
        """All that has been said so far by what is, or may be, rank 1."""
        self.hooks.drain(1)
        for hook in self.hooks.list_stack_sources():
            if hook.answering is not None:
                self.hooks._read(hook.answering)
        return [said.message for said in self.received]


class Process:
    """One that pretends to have a hook."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)

    def say(self, message: HookMessage) -> None:
        self.write(f"\n{to_json(message)}\n".encode())

    def heard(self) -> str:
        return self.socket.recv(65536, socket.MSG_DONTWAIT).decode()

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    for process in server.processes:
        process.socket.close()
    server.read()  # which sees that they are gone
    for hook in server.hooks._hooks.values():
        hook.close()
    server.hooks._server.close()


def test_messages_are_passed_on_with_their_sender(server: Server) -> None:
    server.connect(HELLO, ImportedJax())
    server.connect(Hello(101, "1"), ImportedJax())
    server.read()
    assert sorted(server.received, key=lambda said: said.main) == [
        FromHook(1, ImportedJax(), main=False),
        FromHook(1, ImportedJax(), main=True),
    ]


@pytest.mark.parametrize("process_id", ["", "x", "-1", "4", "1" * 5000, "²", "1.0"])
def test_process_that_is_no_rank_of_this_host_is_ignored(server: Server, process_id: str) -> None:
    server.connect(Hello(100, process_id), ImportedJax(), COMPILING).socket.close()
    assert server.read() == []


def test_messages_before_a_hello_are_dropped(server: Server) -> None:
    server.connect(ImportedJax(), HELLO, Leaving())
    assert server.read() == [Leaving()]


MALFORMED = [
    b'["',
    b'["]',
    b'["Left"]',
    b'["Left", 1]',
    b'["Left",[0]]',
    b'["Nothing",[]]',
    b'["Joined",["1",0]]',
    b'["Joined",[NaN,0]]',
    b'["Joined",[1e400,0]]',
    b'["Joined",[1,' + b"9" * 5000 + b"]]",
    b'["Joined",[' + b"[" * 60_000,
    b'["Compiling",["\xff\xfe\x00","",7]]',
    b'{"failed": {"status": 1}}',
    b"\x00\xff" * 100,
]


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: repr(line[:20]))
def test_a_malformed_line_is_dropped_alone(
    server: Server, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An agent has not imported it, and the scanner would raise an error of its.
    monkeypatch.delitem(sys.modules, "json.decoder", raising=False)
    process = server.connect(HELLO)
    process.write(line + b"\n")
    process.say(Leaving())
    assert server.read() == [Leaving()]


def test_a_huge_line_is_dropped_alone(server: Server) -> None:
    process = server.connect(HELLO)
    assert server.read() == []
    (connection,) = server.hooks._hooks.values()
    process.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    for _ in range(400):  # 25 MiB
        process.write(b'["Left' + b"x" * 65_000)
        assert server.read() == []
        assert len(connection._held) <= 1 << 22
    process.write(b'["Left",[]]')  # still the same line
    assert server.read() == []
    process.write(b"\n")
    process.say(Leaving())
    assert server.read() == [Leaving()]
    assert sum(map(len, connection.stacks)) == 0


def test_the_longest_failure_is_accepted(server: Server) -> None:
    text = "\U0001f600" * 32_000
    failed = Failed(1, True, summary=text, traceback=text)
    process = server.connect(HELLO)
    line = to_json(failed).encode() + b"\n"
    for start in range(0, len(line), 65_000):
        process.write(line[start : start + 65_000])
        assert server.read() == ([] if start + 65_000 < len(line) else [failed])


def test_compilations_of_a_dead_process_end(server: Server) -> None:
    process = server.connect(HELLO, COMPILING, COMPILING, Compiled())
    process.socket.close()
    assert server.read() == [COMPILING, COMPILING, Compiled(), Compiled()]


def test_answering_thread_belongs_to_its_process(server: Server) -> None:
    server.connect(HELLO)
    server.connect(Hello(101, "1"))
    server.connect(Answering(101))
    server.read()
    sources = server.hooks.list_stack_sources()
    assert [hook.pid for hook in sources if hook.answering] == [101]


def test_ranks_that_join_together_are_told_apart(server: Server) -> None:
    joining = Joining("h:1", 4, 1, "train.py:3")
    first = server.connect(HELLO, joining)
    server.read()
    server.connect(Hello(101, "1"), joining)
    server.read()
    first.say(joining)
    server.read()
    first.say(Leaving())
    server.read()
    first.say(joining)
    server.read()
    joins = [
        (said.main, said.beside, said.repeated)
        for said in server.received
        if said.message == joining
    ]
    assert joins == [
        (True, False, False),
        (False, True, False),
        (True, True, True),
        (True, True, False),
    ]


# Most of its time a frame is cleared that C code has called.
BUSY = """
numbers = list(range(500_000))

def copy(number):
    copied = numbers[:]
    return 0

def work():
    while True:
        sorted([1, 2, 3], key=copy)
"""
WITH_THREADS = """
import threading
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
"""
# As initialize() does; the hook's modules are its own.
WITH_ANSWERS = """
import os
from _mcjax_launch.hook.stack_answers import answer_by_thread
answer_by_thread(os.environ["MCJAX_HOOK_SOCKET"])
"""


@pytest.mark.parametrize("answers", ["", WITH_ANSWERS], ids=["by signal", "by thread"])
@pytest.mark.parametrize("threads", ["", WITH_THREADS], ids=["alone", "with threads"])
def test_process_that_runs_python_survives_its_dumps(
    server: Server, threads: str, answers: str
) -> None:
    """Whoever reads stacks without Python's lock reads frames that are half made, and crashes."""
    begin = "print('ready', flush=True)\nwork()"  # each thread has begun
    with server.start(f"{answers}{BUSY}{threads}{begin}") as process:
        if answers:
            eventually(server.has_answering_thread)
        for _ in range(8):
            stacks = server.collect()
            assert process.poll() is None
            main, *others = stacks.text.split("\nThread ")
            assert main.startswith(MAIN_THREAD)
            assert "in <module>" in main
        assert len(others) == (3 if answers and threads else 0)


HANDLES = """
def load():
    raise ValueError("bad batch\\nmore")
def wait(f):
    try:
        f()
    finally:
        print("ready", flush=True)
        sys.stdin.read()
try:
    {}["an internal one"]
except KeyError:
    pass
"""


@pytest.mark.parametrize("answers", ["", WITH_ANSWERS], ids=["by signal", "by thread"])
def test_exception_that_the_main_thread_handles_is_told(
    server: Server, tmp_path: Path, answers: str
) -> None:
    module = tmp_path / "data.py"
    module.write_text(f"import sys\n{HANDLES}")
    program = f"{answers}import sys; sys.path.insert(0, {str(tmp_path)!r}); import data; "
    with server.start(f"{program}data.wait(data.load)"):
        if answers:
            eventually(server.has_answering_thread)
        stacks = server.collect()
    assert "Handling ValueError: bad batch (data.py:4)" in stacks.text.splitlines()


WAITS = {
    "sleep": "import time; time.sleep(99)",
    "lock": "import _thread; lock = _thread.allocate_lock(); lock.acquire(); lock.acquire()",
    "pipe": "import os; os.read(os.pipe()[0], 1)",
    "child": "import subprocess; subprocess.run(['sleep', '9'])",
    "Python": "while True: pass",
    "C code": "import ctypes; ctypes.CDLL(None).sleep(99)",
}


@pytest.mark.parametrize("program", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("answers", ["", WITH_ANSWERS], ids=["by signal", "by thread"])
def test_stack_arrives_whatever_the_main_thread_does(
    server: Server, program: str, answers: str
) -> None:
    if not answers and "ctypes" in program:
        pytest.skip("only a thread answers beside C code")
    with server.start(f"{answers}\nprint('ready', flush=True)\n{program}"):
        if answers:
            eventually(server.has_answering_thread)
        outermost = f'  File "<string>", line {answers.count(chr(10)) + 3} in <module>'
        eventually(lambda: outermost in server.collect().text.splitlines())


# It begins when a line arrives.
HELD = "import ctypes, sys; sys.stdin.readline(); ctypes.PyDLL(None).sleep(9)"
SILENT = {
    "lock": (f"{WITH_ANSWERS}{HELD}", "C code holds Python's lock (the GIL)"),
    "C code": (
        "import ctypes, sys; sys.stdin.readline(); ctypes.CDLL(None).getchar()",
        "its main thread is in C code",
    ),
}


@pytest.mark.only_linux("it tells what a process has read")
@pytest.mark.parametrize(("program", "why"), SILENT.values(), ids=SILENT)
def test_silence_is_explained(server: Server, program: str, why: str) -> None:
    with server.start(f"print('ready', flush=True)\n{program}") as process:
        if WITH_ANSWERS in program:
            eventually(server.has_answering_thread)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        time.sleep(0.3)
        [hook] = server.hooks.list_stack_sources()
        assert hook.ask()
        eventually(lambda: hook.explain_silence() == why)
        assert not hook.has_answered


def test_process_that_has_ended_its_python_is_not_waited_for(server: Server) -> None:
    server.connect(HELLO, PythonEnded())
    server.read()
    [hook] = server.hooks.list_stack_sources()
    assert hook.ask()
    assert (hook.has_answered, hook.stacks) == (True, [MAIN_THREAD])


@pytest.mark.only_linux("it tells who handles a signal")
def test_only_handled_signals_are_sent(server: Server) -> None:
    server.connect(Hello(os.getpid(), "1"), Joined(1))
    server.read()
    [source] = server.hooks.list_stack_sources()
    assert not source.ask()


@pytest.mark.parametrize(
    ("process_id", "imported"),
    [
        ("1", []),
        ('1"]],[["\\n', ["_mcjax_launch.wire.codec"]),
        ("", None),
        ("\udcff\n", None),
    ],
)
def test_hook_writes_a_valid_hello(
    server: Server, process_id: str, imported: list[str] | None
) -> None:
    """Where it can it writes that message itself, without what makes messages."""
    folder = Path(mcjax_launch.__file__).parent / "hook" / "site"
    env = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "MCJAX_HOOK_SOCKET": server.path,
        "JAX_PROCESS_ID": process_id,
    }
    program = "import sys; print([name for name in sys.modules if name.endswith('codec')]); exit(3)"
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate()
    assert process.returncode == 3
    assert imported is None or out == f"{imported}\n"
    accepted = []
    server.hooks._identify = lambda hook, hello: accepted.append(hello)  # type: ignore[method-assign]
    server.read()
    assert accepted == [Hello(process.pid, process_id)]


@pytest.mark.only_linux("a full queue is refused elsewhere")
def test_hook_waits_for_a_busy_agent(tmp_path: Path) -> None:
    """A full queue is no refusal: hundreds of processes may connect while their agent starts more."""
    path = str(tmp_path / "hook")
    connected: list[AgentLink] = []

    def connect() -> None:
        link = AgentLink()
        link.connect(path, "1")
        connected.append(link)

    thread = threading.Thread(target=connect)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as other:
        server.bind(path)
        server.listen(0)
        other.connect(path)  # the queue is full
        thread.start()
        waits = Path(f"/proc/self/task/{thread.native_id}/wchan")
        eventually(lambda: not thread.is_alive() or "unix" in waits.read_text())
        assert thread.is_alive()
        server.accept()[0].close()
        accepted, _ = server.accept()
        with accepted:
            thread.join()
            assert b"Hello" in accepted.recv(100)
    assert connected[0]._to_agent is not None
    os.close(connected[0]._to_agent.fd)
