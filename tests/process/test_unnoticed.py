"""Programs that look at what the hook could change: under the launcher they do what they do alone."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from records import read

# Of objects, and how long the tests of a test took.
_VARYING = re.compile(" at 0x[0-9a-f]+| in [0-9.]+s")
SUB_INTERPRETER = """
try: import _interpreters as sub
except ImportError: import _xxsubinterpreters as sub
number = sub.create()
print(sub.run_string(number, "import sys; print(sys.excepthook, sys.exit, SystemExit(3).code, flush=True)"))
try: print(type(sub.run_string(number, "raise SystemExit(3)")))
except Exception as error: print(type(error).__name__)
sub.destroy(number)
sys.exit(3)
"""
# What each prints on both outputs must be the same.
PROGRAMS = {
    "class of an exit": "try: sys.exit(3)\nexcept SystemExit as e: print(type(e) is SystemExit, repr(e), e.code, e.args, vars(e))",
    "class of one from C": "try: SystemExit.__new__(SystemExit)\nfinally: print(SystemExit.__mro__, SystemExit.__subclasses__())",
    "codes": "for code in (None, 0, 3, -1, 256, True, 'words', (), (1, 2), (None,), 3.0, SystemExit(5), SystemExit):\n try: sys.exit(code)\n except SystemExit as e: print(repr(e.code), e.args, type(e))",
    "no code": "try: sys.exit()\nexcept SystemExit as e: print(repr(e.code), e.args)",
    "wrong arguments": "for args, more in (((1, 2), {}), ((), {'status': 3})):\n try: sys.exit(*args, **more)\n except TypeError as e: print(e)",
    "context": "try:\n try: 1/0\n except Exception: sys.exit(3)\nexcept SystemExit as e: print(repr(e.__context__), repr(e.__cause__))",
    "pickled exit": "import pickle; e = pickle.loads(pickle.dumps(SystemExit(3))); print(type(e) is SystemExit, e.code)",
    "copied exit": "import copy; e = copy.deepcopy(SystemExit([3])); print(type(e) is SystemExit, e.code)",
    "group of exits": "try: raise BaseExceptionGroup('all', [SystemExit(3)])\nexcept* SystemExit as e: print(e.exceptions[0].code)",
    "help": "import pydoc; print(pydoc.render_doc(SystemExit, renderer=pydoc.plaintext).count('exception code'))",
    "pickled functions": "import pickle\nfor f in (sys.exit, sys.excepthook): print(pickle.loads(pickle.dumps(f)) is f, pickle.dumps(f, 0))",
    "copied functions": "import copy\nfor f in (sys.exit, sys.excepthook): print(copy.copy(f) is f, copy.deepcopy([f])[0] is f)",
    "signatures": "import inspect\nfor f in (sys.exit, sys.excepthook): print(inspect.signature(f), f.__name__, f.__qualname__, f.__module__, f, f.__self__, inspect.getdoc(f)[:40], callable(f))",
    "identity": "print(sys.excepthook is sys.__excepthook__); import code; code.InteractiveInterpreter().runsource('1/0')",
    "hook without arguments": "try: sys.excepthook()\nexcept TypeError as e: print(e)",
    "exit in a process": "import multiprocessing as m\nfor way in ('fork', 'spawn'):\n p = m.get_context(way).Process(target=sys.exit, args=(3,)); p.start(); p.join(); print(p.exitcode)",
    "unittest": "import unittest\nclass T(unittest.TestCase):\n def test(self): assert False\n def test_raises(self):\n  with self.assertRaises(SystemExit) as c: sys.exit(4)\n  assert c.exception.code == 4\nunittest.main(argv=['x'], verbosity=0, exit='--' in sys.argv)\n",
    "pdb": "import pdb, io; pdb.Pdb(stdin=io.StringIO('n\\nc\\n'), stdout=sys.stdout, nosigint=True).run('x = 1'); print()",
    "finalizers": "import weakref, tempfile\nclass C:\n def __del__(self): print('gone')\nc = C(); weakref.finalize(C, lambda: 1/0)",
    "exit in __del__": "class C:\n def __del__(self): raise SystemExit(3)\nc = C(); del c; print('on')",
    "exits of threads": "import threading\nfor f in (sys.exit, lambda: sys.exit(3), lambda: 1/0, quit):\n t = threading.Thread(target=f, name='T'); t.start(); t.join()",
    "exit of a bare thread": "import _thread, time\nl = _thread.allocate_lock(); l.acquire()\ndef f():\n try: sys.exit(3)\n finally: l.release()\n_thread.start_new_thread(f, ()); l.acquire(); print('on')",
    "exit of a pool": "from concurrent.futures import ThreadPoolExecutor\nf = ThreadPoolExecutor(1).submit(sys.exit, 3); print(repr(f.exception()))",
    "forked child fails": "import os\nif os.fork() == 0: 1/0\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "cProfile": "import cProfile; cProfile.run('sys.exit(3)', '/dev/null'); print('on')",
    "trace": "import trace, os\nt = trace.Trace(count=True, trace=False)\ntry: t.run('import sys; sys.exit(3)')\nexcept SystemExit: t.results().write_results(coverdir='.'); print(os.listdir())",
    "modules": "import importlib.util; print([importlib.util.find_spec(n).name for n in ('threading', 'json')], 'threading' in sys.modules, 'signal' in sys.modules)",
    "path": "print(sys.path, sys.argv, sys.flags)",
    "all warnings": "import warnings, gc; gc.collect(); print(warnings.filters)",
    # These fail, each with a status that must be the same too.
    "code is set": "try: sys.exit(3)\nexcept SystemExit as e: e.code = 'words'; print(e.code); del e.code; print(e.code); e.code = 4; raise",
    "own code": "class Own(SystemExit): code = 7\nraise Own(3)",
    "own attribute": "class Own(SystemExit):\n def __init__(self): self.code = 7\nraise Own",
    "as attributes": "class App: leave, show = sys.exit, sys.excepthook\nApp().show(ValueError, ValueError('x'), None); App().leave(3)",
    "own hook": "def hook(*args): print(len(args), args[0])\nsys.excepthook = hook; print(sys.excepthook is hook); 1/0",
    "hook put back": "def hook(*args): pass\nsys.excepthook, old = hook, sys.excepthook; sys.excepthook = old; print(sys.excepthook is sys.__excepthook__); 1/0",
    "syntax": "if True print(1)",
    "nested exceptions": "try: 1/0\nexcept Exception as e: raise ValueError('x') from e",
    "interrupt": "raise KeyboardInterrupt",
    "recursion": "def f(): f()\ntry: f()\nexcept RecursionError: sys.exit('too deep')",
    "unprintable": "class E(Exception):\n def __str__(self): raise ValueError\nraise E",
    "asyncio": "import asyncio\nasync def f(): sys.exit(3)\nasyncio.run(f())",
    "asyncio, a task": "import asyncio\nasync def g(): raise SystemExit(3)\nasync def f(): await asyncio.gather(g(), asyncio.sleep(9))\nasyncio.run(f())",
    "unittest's exit": "import io, unittest\nclass T(unittest.TestCase):\n def test(self): assert False\nunittest.main(argv=['x'], testRunner=unittest.TextTestRunner(io.StringIO()))",
    "argparse": "import argparse; argparse.ArgumentParser(prog='x').parse_args(['--no'])",
    "atexit": "import atexit; atexit.register(print, 'over'); atexit.register(divmod, 1, 0); sys.exit(3)",
    "exit in a signal": "import signal, os; signal.signal(signal.SIGUSR1, lambda *a: sys.exit(3)); os.kill(os.getpid(), signal.SIGUSR1)",
    "forked child": "import os\nif os.fork() == 0: sys.exit(4)\nprint(os.waitstatus_to_exitcode(os.wait()[1]), flush=True); sys.exit(3)",
    "runpy": "import runpy, os; open('p.py', 'w').write('import sys; sys.exit(3)'); runpy.run_path('p.py', run_name='__main__')",
    "an embedded program": "import ctypes; print(ctypes.pythonapi.PyRun_SimpleString(b'1/0')); ctypes.pythonapi.PyRun_SimpleString(b'raise SystemExit(3)')",
    "all descriptors closed": "import os; os.closerange(3, 100); f = open('log', 'w'); print(f.fileno()); f.write('mine'); f.flush()\nimport atexit; atexit.register(lambda: print(open('log').read())); 1/0",
    "sub-interpreter": SUB_INTERPRETER,
}  # fmt: skip
# They run as the ranks of some jobs, each in a folder of its own.
PARTS = 3
EACH = """
import os, sys
os.chdir(os.environ["JAX_PROCESS_ID"])
with open("program") as file: text = file.read()
del file, sys.argv[1:]
exec(text)
"""
COMMAND = (sys.executable, "-X", "dev", "-c", EACH)


def alone(folder: Path, rank: int) -> tuple[int, str, str]:
    """Run a program without the launcher; its status and what it prints."""
    env = {**os.environ, "JAX_PROCESS_ID": str(rank)}
    done = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder, env=env
    )
    return done.returncode, done.stdout, _VARYING.sub("", done.stderr)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_behave_alike_alone_and_launched(jobs: Jobs, tmp_path: Path, part: int) -> None:
    programs = [*PROGRAMS.items()][part::PARTS]
    for rank, (_, body) in enumerate(programs):
        for way in ("alone", "launched"):
            folder = tmp_path / way / str(rank)
            folder.mkdir(parents=True)
            (folder / "program").write_text(body)
    logs, report = tmp_path / "logs", tmp_path / "run.json"
    options = ["-n", len(programs), "--on-rank-failure", "continue"]
    options += ["--log-dir", logs, "--report", report]
    null = subprocess.DEVNULL
    running = jobs.start(*options, *COMMAND, cwd=tmp_path / "launched", stdout=null, stderr=null)
    expected = [alone(tmp_path / "alone", rank) for rank in range(len(programs))]
    running.finish()
    for run in read(report)["attempts"][0]["ranks"]:
        rank = run["rank"]
        name, (status, *shown) = programs[rank][0], expected[rank]
        assert status or any(shown), f"{name}: shows nothing"
        ended = -signal.Signals[run["signal"]] if run["signal"] else run["exit_status"]
        texts = [(logs / f"{rank}.{end}").read_text() for end in ("out", "err")]
        assert [ended, texts[0], _VARYING.sub("", texts[1])] == [status, *shown], name
