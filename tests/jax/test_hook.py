"""The hook and the ways in which a JAX program may leave."""

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs

forked_too = pytest.mark.both_ways("jax")

# How a program of rank 1 may leave, or nearly leave, while rank 0 waits for it in vain: what comes of it.
LEAVING = {
    "sys.exit": "sys.exit(3)",
    "raise": "raise SystemExit(3)",
    "main": "def main(): start(); return 3\nraise SystemExit(main())",
    "captured early": "leave(3)",
    "own class": "raise Own(3)",
    "finally": "try: sys.exit(3)\nfinally: print('cleaned')",
    "held": "def f():\n try: sys.exit(3)\n except SystemExit as e: held.append(e); raise\nf()",
    "cycle": "e = SystemExit(3); e.me = e; raise e",
    "asyncio": "import asyncio\nasync def f(): sys.exit(3)\nasyncio.run(f())",
    "after one that was caught": "caught(5)\nsys.exit(3)",
    "after one of a thread": "t = threading.Thread(target=sys.exit, args=(5,)); t.start(); t.join(); sys.exit(3)",
    "argparse": "import argparse\ntry: argparse.ArgumentParser().error('x')\nexcept SystemExit: sys.exit(3)",
}  # fmt: skip
START = """
import sys, threading
from sys import exit as leave
import jax
from jax.experimental import multihost_utils
held = []
class Own(SystemExit): pass
def start():
    jax.distributed.initialize()
    multihost_utils.sync_global_devices('started')
    if jax.process_index() == 0:
        threading.Event().wait()
def caught(code):
    try: sys.exit(code)
    except SystemExit as e: x = e
"""


@forked_too
@pytest.mark.every_jax
@pytest.mark.parametrize("name", LEAVING)
def test_every_exit_is_seen(jobs: Jobs, name: str) -> None:
    """JAX's barrier would hold each of them up for as long as rank 0 waits."""
    body = LEAVING[name] if name == "main" else "start()\n" + LEAVING[name]
    ended = jobs.run("-n", 2, "--grace", "0.2", sys.executable, "-c", START + body, limit=90)
    assert ended.status == 3, ended.stderr
    assert "rank 1 failed: exit status 3" in ended.report
    assert "Exception" not in ended.stderr


# And by an exception: whoever handles it first, and whatever then waits.
RAISING = {
    "nobody": "1/0",
    "in a function": "def f(): 1/0\nf()",
    "finally": "try: 1/0\nfinally: print('cleaned')",
    "raised again": "try: 1/0\nexcept Exception: raise",
    "own hook, silent": "sys.excepthook = lambda *args: None\n1/0",
    "own hook, which passes it on": "old = sys.excepthook; sys.excepthook = lambda *args: old(*args)\n1/0",
    "own hook, and a thread": "sys.excepthook = lambda *args: None; threading.Thread(target=forever.wait).start()\n1/0",
    "Python's hook put back": "sys.excepthook = sys.__excepthook__\n1/0",
    "handed on before": "try: [][0]\nexcept Exception: sys.excepthook(*sys.exc_info())\n1/0",
}  # fmt: skip


@forked_too
@pytest.mark.every_jax
@pytest.mark.parametrize("name", RAISING)
def test_every_exception_is_seen(jobs: Jobs, name: str) -> None:
    program = START + "forever = threading.Event(); start()\n" + RAISING[name]
    ended = jobs.run("-n", 2, "--grace", "0.2", sys.executable, "-c", program, limit=90)
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


@pytest.mark.parametrize("name", STAYING)
def test_what_is_not_an_exit(jobs: Jobs, name: str) -> None:
    program = START + "jax.distributed.initialize()\n" + STAYING[name]
    ended = jobs.run("-n", 1, sys.executable, "-c", program)
    assert ended.status == 0, ended.stderr
    assert ended.report == ""
    if name != "in atexit":  # of which Python itself says something
        assert ended.stderr == ""


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


@forked_too
@pytest.mark.parametrize("name", SHOWING)
def test_what_is_shown_is_no_failure(jobs: Jobs, name: str) -> None:
    program = START + KEPT + "jax.distributed.initialize()\n" + SHOWING[name]
    ended = jobs.run("-n", 1, sys.executable, "-c", program)
    assert (ended.status, ended.report) == (0, ""), ended.stderr
    assert "Error" in ended.stderr


@forked_too
def test_an_interrupt_is_seen(jobs: Jobs) -> None:
    program = START + "start()\nraise KeyboardInterrupt"
    ended = jobs.run("-n", 2, "--grace", "0.2", sys.executable, "-c", program, limit=90)
    assert ended.status == 130, ended.stderr
    assert "rank 1 failed: KeyboardInterrupt" in ended.report


# Join the job, leave it, and join it again.
AGAIN = """
import os, sys, time, jax
rank, folder = sys.argv[1:]
for turn in range(3):
    jax.distributed.initialize()
    print(jax.distributed.is_initialized())
    jax.distributed.shutdown()
    print(jax.distributed.is_initialized())
    closed = os.path.join(folder, str(turn))  # the coordinator, which the next one replaces
    if rank == '0':
        open(closed, 'x').close()
    while not os.path.exists(closed):
        time.sleep(0.01)
"""


@forked_too
@pytest.mark.every_jax
@pytest.mark.timeout(240)
@pytest.mark.parametrize("status", [0, 3])
def test_the_job_is_joined_again(jobs: Jobs, tmp_path: Path, status: int) -> None:
    """And who has left it may end as he likes: nothing holds him up."""
    program = f"{AGAIN}sys.exit({status} * (rank == '1'))"
    words = ["-n", 2, "--no-prefix", sys.executable, "-c", program, "{process_id}", tmp_path]
    ended = jobs.run(*words, limit=180)
    assert ended.status == status, ended.stderr
    if status:  # which rank 0 may not live to print its last word after
        assert ended.report.startswith("rank 1 failed: exit status 3")
    else:
        assert (ended.stdout.count("True"), ended.stdout.count("False")) == (6, 6)
        assert ended.report == ""


# What JAX's functions look like.
LOOKING = """
import copy, inspect, pickle
import jax
import jax._src.distributed as inner
from jax._src import compiler
from jax._src.interpreters import pxla
functions = [jax.distributed.initialize, jax.distributed.shutdown]
functions += [f for f in [getattr(compiler, "compile_or_get_cached", None)] if f]
for f in [*functions, pxla.ExecuteReplicated.__call__]:
    print(f.__name__, f.__qualname__, f.__module__, inspect.signature(f), inspect.getdoc(f))
    print(inspect.getsourcelines(f)[1])
for f in functions:
    print(inspect.getfullargspec(f).args, pickle.loads(pickle.dumps(f)) is f, copy.deepcopy(f) is f)
print(jax.distributed.initialize is inner.initialize, jax.distributed.shutdown is inner.shutdown)
"""


@forked_too
@pytest.mark.every_jax
def test_jax_looks_the_same(jobs: Jobs) -> None:
    words = [sys.executable, "-c", LOOKING]
    alone = subprocess.run(words, capture_output=True, text=True, check=True)
    assert jobs.run("--no-prefix", *words).stdout == alone.stdout


def test_a_mistake_that_jax_reports_is_not_waited_for(jobs: Jobs) -> None:
    program = "import jax; jax.distributed.initialize(num_processes=1, process_id=2)"
    ended = jobs.run("-n", 2, "--grace", "0.5", sys.executable, "-c", program, limit=90)
    assert ended.status == 1
    assert "process_id" in ended.report
