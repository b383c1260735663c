"""The ways in which a program that has joined a job may leave, on what stands for jax."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from stand_in_jax import make_stand_in

Run = Callable[[int, str], Ended]

FORKED = pytest.mark.forked("abc")

# How a program of rank 1 may leave, or nearly leave, while rank 0 waits for it in vain: what comes of it.
LEAVING = {
    "sys.exit": "sys.exit(3)",
    "main": "def main(): start(); return 3\nraise SystemExit(main())",
    "captured early": "leave(3)",
    "own class": "raise Own(3)",
    "held": "def f():\n try: sys.exit(3)\n except SystemExit as e: held.append(e); raise\nf()",
    "asyncio": "import asyncio\nasync def f(): sys.exit(3)\nasyncio.run(f())",
    "after one that was caught": "caught(5)\nsys.exit(3)",
    "after one of a thread": "t = threading.Thread(target=sys.exit, args=(5,)); t.start(); t.join(); sys.exit(3)",
    "argparse": "import argparse\ntry: argparse.ArgumentParser().error('x')\nexcept SystemExit: sys.exit(3)",
}  # fmt: skip
START = """
import atexit, os, sys, threading
from sys import exit as leave
held, joined = [], threading.Event()
@atexit.register  # JAX's barrier, which rank 0 does not come to
def barrier():
    if joined.is_set(): threading.Event().wait()
import jax
class Own(SystemExit): pass
def start():
    jax.distributed.initialize()
    joined.set()
    if os.environ['JAX_PROCESS_ID'] == '0':
        threading.Event().wait()
def caught(code):
    try: sys.exit(code)
    except SystemExit as e: x = e
"""


@pytest.fixture
def run(jobs: Jobs, tmp_path: Path) -> Run:
    """Runs a program as so many ranks."""
    make_stand_in(tmp_path)

    def run(ranks: int, program: str) -> Ended:
        words = ["-n", ranks, "--grace", "0.2", sys.executable, "-c", START + program]
        return jobs.run(*words, env={"PYTHONPATH": str(tmp_path)})

    return run


@pytest.mark.every_jax
@pytest.mark.parametrize("name", [*LEAVING, pytest.param("own class", marks=FORKED)])
def test_every_exit_is_reported(run: Run, name: str) -> None:
    """JAX's barrier would hold each of them up for as long as rank 0 waits."""
    body = LEAVING[name] if name == "main" else "start()\n" + LEAVING[name]
    ended = run(2, body)
    assert ended.status == 3, ended.stderr
    assert "rank 1 failed: exit status 3" in ended.report
    assert "Exception" not in ended.stderr


# And by an exception: whoever handles it first, and whatever then waits.
RAISING = {
    "in a function": "def f(): 1/0\nf()",
    "finally": "try: 1/0\nfinally: print('cleaned')",
    "raised again": "try: 1/0\nexcept Exception: raise",
    "own hook, silent": "sys.excepthook = lambda *args: None\n1/0",
    "own hook, which passes it on": "old = sys.excepthook; sys.excepthook = lambda *args: old(*args)\n1/0",
    "own hook, and a thread": "sys.excepthook = lambda *args: None; threading.Thread(target=forever.wait).start()\n1/0",
    "Python's hook put back": "sys.excepthook = sys.__excepthook__\n1/0",
    "handed on before": "try: [][0]\nexcept Exception: sys.excepthook(*sys.exc_info())\n1/0",
}  # fmt: skip


@pytest.mark.every_jax
@pytest.mark.parametrize("name", [*RAISING, pytest.param("finally", marks=FORKED)])
def test_every_exception_is_reported(run: Run, name: str) -> None:
    ended = run(2, "forever = threading.Event(); start()\n" + RAISING[name])
    assert ended.status == 1, ended.stderr
    assert "rank 1 failed: ZeroDivisionError: division by zero" in ended.report


# And what is no way out must not be taken for one.
STAYING = {
    "caught": "caught(3)",
    "caught below": "import asyncio\nasync def f(): sys.exit(3)\ntry: asyncio.run(f())\nexcept SystemExit: pass",
    "caught and kept": "try: sys.exit(3)\nexcept SystemExit as e: held.append(e)",
    "own class": "try: raise Own(3)\nexcept SystemExit: pass",
    "in a thread": "t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()",
    "in atexit": "import atexit; atexit.register(lambda: sys.exit(5))",
    "zero": "raise SystemExit(0)",
    "none": "sys.exit()",
    "by pytest": "import pytest\nwith pytest.raises(SystemExit): leave(3)",
    "names": "assert SystemExit.__name__ == 'SystemExit' and issubclass(SystemExit, BaseException)",
}  # fmt: skip


def each(ways: dict[str, str]) -> str:
    """A program that goes another of these ways in each rank."""
    return (
        f"jax.distributed.initialize()\nexec({[*ways.values()]}[int(os.environ['JAX_PROCESS_ID'])])"
    )


def test_harmless_endings_are_no_exit(run: Run) -> None:
    ended = run(len(STAYING), each(STAYING))
    assert ended.status == 0, ended.stderr
    assert ended.report == ""
    said = f"[{[*STAYING].index('in atexit')}]"  # of which Python itself says something
    assert [line for line in ended.stderr.splitlines() if not line.startswith(said)] == []


# Who shows an exception by the means of Python, and goes on.
SHOWING = {
    "caught": "try: 1/0\nexcept Exception: sys.excepthook(*sys.exc_info())",
    "kept": "e = kept(); sys.excepthook(type(e), e, e.__traceback__)",
    "made": "sys.excepthook(ValueError, ValueError('made'), None)",
    "console": "import code; code.InteractiveInterpreter().runsource('1/0')",
    "by a thread": "t = threading.Thread(target=lambda: sys.excepthook(type(e := kept()), e, e.__traceback__)); t.start(); t.join()",
    "of a thread": "threading.excepthook = lambda args: sys.excepthook(*args[:3]); t = threading.Thread(target=lambda: 1/0); t.start(); t.join()",
    "of a bare thread": "import _thread; done = threading.Event(); _thread.start_new_thread(keep, ()); done.wait(); e = held[0]; sys.excepthook(type(e), e, e.__traceback__)",
    "in C": "import ctypes; ctypes.pythonapi.PyRun_SimpleString(b'1/0')",
    "finalizer at exit": "import weakref; weakref.finalize(Own, lambda: 1/0)",
    "folder at exit": "import tempfile, os; folder = tempfile.TemporaryDirectory(); os.rmdir(folder.name); open(folder.name, 'w').close()",
    "kept until exit": "import atexit; e = kept(); atexit.register(lambda: sys.excepthook(type(e), e, e.__traceback__))",
    "forked processes": "import multiprocessing as m\nfor f in (lambda: 1/0, lambda: sys.exit(3)): p = m.get_context('fork').Process(target=f); p.start(); p.join(); print(p.exitcode)",
    "post mortem": "try: 1/0\nexcept Exception as e: sys.last_value = sys.last_exc = e; import traceback; traceback.print_exc()",
}  # fmt: skip
KEPT = """
def kept():
    try: 1/0
    except Exception as e: return e
def keep():
    try: 1/0
    except Exception as e: held.append(e)
    done.set()
"""


@pytest.mark.parametrize("ranks", ["afresh", pytest.param("forked", marks=FORKED)])
def test_shown_exceptions_are_no_failure(run: Run, ranks: str) -> None:
    ended = run(len(SHOWING), KEPT + each(SHOWING))
    own = [line for line in ended.report.splitlines() if "--preload" not in line]
    assert (ended.status, own) == (0, []), ended.stderr
    for rank, name in enumerate(SHOWING):
        lines = [line for line in ended.stderr.splitlines() if line.startswith(f"[{rank:2}]")]
        assert any("Error" in line for line in lines), name


def test_keyboard_interrupt_is_reported(run: Run) -> None:
    ended = run(2, "start()\nraise KeyboardInterrupt")
    assert ended.status == 130, ended.stderr
    assert "rank 1 failed: KeyboardInterrupt" in ended.report


DROPPED = """
import gc, signal, time
start()
def interrupt(phase, info):
    if not held: held.append(os.kill(os.getpid(), signal.SIGINT)); [None for _ in range(9)]
gc.callbacks.append(interrupt)
gc.collect()
while True: time.sleep(1)
"""


@pytest.mark.every_jax
def test_interrupt_in_a_callback_of_the_collector_ends_the_program(run: Run) -> None:
    """Python drops it there, and JAX has such a callback."""
    ended = run(2, DROPPED)
    assert "rank 1 failed: KeyboardInterrupt" in ended.report
    assert "Exception ignored" not in ended.stderr


# A program that handles its exception and then exits: with which status, and what is told.
HANDLING = {
    "logged": ("try: load()\nexcept Exception: print('failed', file=sys.stderr); sys.exit(1)", 1, ()),
    "hydra": ("def run(call):\n try: call()\n except Exception:\n  try: raise OSError('no config')\n  except OSError: pass\n  sys.exit(1)\nrun(load)", 1, ()),
    "os._exit": ("try: load()\nexcept Exception: os._exit(17)", 17, ()),
    "shown, as coverage does": ("def run():\n try: load()\n except Exception: sys.excepthook(*sys.exc_info())\n return 1\nsys.exit(run())", 1, ()),
    "own hook": ("sys.excepthook = lambda *args: os._exit(17)\nload()", 17, ()),
    "in a thread": ("def worker():\n try: load()\n except Exception: os._exit(17)\nthreading.Thread(target=worker).start(); threading.Event().wait()", 17, ()),
    "wrapped": (
        "try:\n try: load()\n except KeyError as e: raise RuntimeError('no batch') from e\nexcept RuntimeError: sys.exit(4)",
        4, ("RuntimeError: no batch", "caused by: KeyError: 'label', at <string>:"),
    ),
}  # fmt: skip
LOAD = "def load(): return {}['label']\n"


@pytest.mark.every_jax
@pytest.mark.parametrize("name", HANDLING)
def test_exception_handled_at_an_exit_is_reported(run: Run, name: str) -> None:
    program, status, words = HANDLING[name]
    ended = run(2, LOAD + "start()\n" + program)
    assert ended.status == status, ended.stderr
    first, place, *_ = ended.report.splitlines()
    told = words[0] if words else "KeyError: 'label'"
    assert first == f"rank 1 failed: exit status {status}, while handling {told}"
    assert words or " in load" in place
    assert all(word in ended.report for word in words)


# An exit with a text, which Python prints: how the failure is told.
TEXTS = {
    "computed": ("sys.exit(f'fatal: {40 + 2} is missing')", "fatal: 42 is missing"),
    "an exception": ("raise SystemExit(OSError(2, 'no such file'))", "[Errno 2] no such file"),
    "several lines": ("sys.exit('\\n  cannot load:\\n  no file\\nmore')", "cannot load: no file"),
    "handling": ("try: load()\nexcept KeyError: sys.exit('no label')", "no label, while handling KeyError: 'label'"),
    "empty": ("sys.exit('')", "exit status 1"),
    "a tuple": ("raise SystemExit('a', 3)", "('a', 3)"),
    "long": ("sys.exit('a' * 9999)", "a" * 400 + " ..."),
}  # fmt: skip
IN_RANK_1 = "if os.environ['JAX_PROCESS_ID'] == '0': start()\n"


@pytest.mark.every_jax
@pytest.mark.parametrize(
    ("name", "before"),
    [*((name, "start()\n") for name in TEXTS), ("computed", IN_RANK_1)],
    ids=[*TEXTS, "early"],
)
def test_text_of_an_exit_is_the_cause(run: Run, name: str, before: str) -> None:
    program, told = TEXTS[name]
    ended = run(2, LOAD + before + program)
    assert ended.status == 1, ended.stderr
    first, place, *_ = ended.report.splitlines()
    assert first == f"rank 1 failed: {told}"
    if before != IN_RANK_1 or sys.version_info >= (3, 12):
        assert place.startswith("at <string>:")


# Programs that fail in all ranks alike, without calls: a line that is shown once.
ALIKE = {
    "SyntaxError": ("def f(:\n  pass", "SyntaxError: invalid syntax", "SyntaxError: invalid syntax"),
    "argparse": (
        "import argparse\nargparse.ArgumentParser(prog='my tool-1').parse_args(['--lr'])",
        "my tool-1: error: unrecognized arguments: --lr", "exit status 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_equal_failures_without_a_traceback_are_one(jobs: Jobs, tmp_path: Path, name: str) -> None:
    make_stand_in(tmp_path)
    program, line, told = ALIKE[name]
    (tmp_path / "program.py").write_text(program)
    words = ["-n", 3, "--grace", "3", tmp_path / "program.py"]
    ended = jobs.run(*words, env={"PYTHONPATH": str(tmp_path)})
    printed = [shown[4:] for shown in ended.stderr.splitlines() if shown.startswith("[")]
    assert printed.count(line) == 1, ended.stderr
    assert f": {told}\n" in ended.report + "\n"


# An exit for which there is nothing that was handled.
BARE = {
    "os._exit": "try: load()\nexcept KeyError: pass\nos._exit(3)",
    "caught before": "try: load()\nexcept KeyError: pass\nsys.exit(3)",
    "kept": "try: load()\nexcept KeyError as e: held.append(e)\nsys.exit(3)",
}


@pytest.mark.parametrize("name", BARE)
def test_only_the_exception_in_handling_is_reported(run: Run, name: str) -> None:
    ended = run(2, LOAD + "start()\n" + BARE[name])
    assert ended.status == 3, ended.stderr
    assert ended.report.splitlines()[0] == "rank 1 failed: exit status 3"


# What an exception came of, each with its line.
BEHIND = {
    "from": (
        "def wrap():\n try: load()\n except KeyError as e: raise RuntimeError('no batch') from e\nwrap()",
        ["RuntimeError: no batch", "caused by: KeyError: 'label', at <string>: in load"],
    ),
    "from None": ("try: load()\nexcept KeyError: raise RuntimeError('x') from None", ["RuntimeError: x"]),
    "while handling": ("try: load()\nexcept KeyError: 1/0", ["ZeroDivisionError: division by zero"]),
    "circle": (
        "a = ValueError('a'); b = ValueError('b'); b.__cause__ = a; a.__cause__ = b; raise a",
        ["ValueError: a", "caused by: ValueError: b"],
    ),
    "without words": ("raise ValueError('\\n  shapes differ')", ["ValueError: shapes differ"]),
    "empty": ("raise RuntimeError('')", ["RuntimeError"]),
}  # fmt: skip
NUMBER = re.compile(r"(?<=<string>:)\d+")


@pytest.mark.parametrize("name", BEHIND)
def test_causes_of_an_exception_are_reported(run: Run, name: str) -> None:
    program, told = BEHIND[name]
    ended = run(2, LOAD + "start()\n" + program)
    first, *rest = (NUMBER.sub("", line) for line in ended.report.splitlines())
    assert first == f"rank 1 failed: {told[0]}"
    behind = [line for line in rest if line.startswith(("caused by", "inside"))]
    assert len(behind) == len(told) - 1
    assert all(line.startswith(start) for line, start in zip(behind, told[1:], strict=True))


GROUP = """
async def fetch(shard):
    await asyncio.sleep(0)
    if shard: raise OSError(f'no shard {shard}')
async def main():
    async with asyncio.TaskGroup() as group:
        for shard in range(3): group.create_task(fetch(shard))
start(); import asyncio; asyncio.run(main())
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_exceptions_of_a_group_are_reported(run: Run) -> None:
    ended = run(2, GROUP)
    lines = [line for line in ended.report.splitlines() if line.startswith("inside: ")]
    assert [line.partition(", at <string>:")[0] for line in lines] == [
        "inside: OSError: no shard 1",
        "inside: OSError: no shard 2",
    ]
    assert all(" in fetch" in line for line in lines)


def test_notes_of_an_exception_are_in_the_summary(jobs: Jobs, tmp_path: Path) -> None:
    text = "error = ValueError('bad')\nerror.add_note('batch 7\\nof 9')\nraise error\n"
    (tmp_path / "program.py").write_text(text)
    ended = jobs.run("-n", 1, tmp_path / "program.py")
    assert ended.report.startswith("rank 0 failed: ValueError: bad (batch 7)\n")
