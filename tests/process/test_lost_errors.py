"""Exceptions that end threads: told where a job fails, on what stands for jax."""

import sys
from pathlib import Path

import pytest
from jobs import Jobs
from stand_in_jax import make_stand_in

START = """
import concurrent.futures as futures, os, sys, threading
import jax
jax.distributed.initialize()
odd = os.environ["JAX_PROCESS_ID"] == "1"
def load(): raise ValueError("corrupt record")
def in_thread(call):
    thread = threading.Thread(target=call, name="loader"); thread.start(); thread.join()
pool = futures.ThreadPoolExecutor(1, "pool")
def submit(): return pool.submit(load)
"""
THREAD = "rank 1's thread loader ended {} before: ValueError: corrupt record, at <string>:6"
LOST = {
    "a thread": ("in_thread(load)", [THREAD]),
    "a thread, own hook": ("threading.excepthook, old = lambda args: old(args), threading.excepthook\nin_thread(load)", [THREAD]),
    "a thread, own hook alone": ("threading.excepthook = lambda args: None\nin_thread(load)", [THREAD]),
    "one that handles it": ("def f():\n try: load()\n except ValueError: pass\nin_thread(f)", []),
    "a future": ("futures.wait([submit()])", []),
    "a forked process": (
        "import multiprocessing as m; p = m.get_context('fork').Process(target=lambda: in_thread(load)); p.start(); p.join()",
        [],
    ),
}  # fmt: skip


@pytest.mark.every_jax
@pytest.mark.parametrize("name", LOST)
def test_unhandled_error_is_reported_when_another_rank_fails(
    jobs: Jobs, tmp_path: Path, name: str
) -> None:
    make_stand_in(tmp_path)
    program, told = LOST[name]
    program = START + f"if odd:\n exec({program!r})\n done = open('done', 'w')\n sys.stdin.read()\n"
    program += "else:\n import time\n while not os.path.exists('done'): time.sleep(0.01)\n raise KeyError('label')"
    words = ["-n", 2, "--stdin", "--grace", "0.2", sys.executable, "-c", program]
    ended = jobs.run(*words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ended.status == 1, ended.stderr
    assert ended.report.startswith("rank 0 failed: KeyError: 'label'\n")
    lines = [line for line in ended.report.splitlines() if "thread " in line]
    start, _, end = told[0].partition("{}") if told else ("", "", "")
    assert len(lines) == len(told), ended.report
    assert all(line.startswith(start) and line.endswith(end) for line in lines), lines


def test_exception_of_a_future_is_the_cause(jobs: Jobs, tmp_path: Path) -> None:
    make_stand_in(tmp_path)
    program = START + "print(vars(futures.Future).get('_exception'))\nsubmit().result()"
    ended = jobs.run("-n", 1, sys.executable, "-c", program, env={"PYTHONPATH": str(tmp_path)})
    assert "[0] None" in ended.stdout.splitlines()
    assert ended.report.startswith("rank 0 failed: ValueError: corrupt record\n"), ended.report
