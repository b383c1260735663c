"""The hook inside a rank's Python."""

import sys
from pathlib import Path

import pytest
from jobs import Jobs

from mcjax_launch.hook.mcjax_hook import initialize as hook

ENVIRON = {
    "JAX_COORDINATOR_ADDRESS": "127.0.0.1:5000",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "2",
    "MCJAX_HOOK_BIND": "127.0.0.1:5000",
}


def new_jax(
    coordinator_address: object = None,
    num_processes: object = None,
    process_id: object = None,
    local_device_ids: object = None,
    cluster_detection_method: object = None,
    initialization_timeout: int = 300,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: object = None,
) -> None:
    """The arguments of a jax that knows all that we fill."""


def old_jax(
    coordinator_address: object = None,
    num_processes: object = None,
    process_id: object = None,
    local_device_ids: object = None,
) -> None:
    """One that knows none of it."""


def test_everything_is_filled() -> None:
    assert hook.fill_in(new_jax, (), {}, ENVIRON) == {
        "coordinator_address": "127.0.0.1:5000",
        "num_processes": 4,
        "process_id": 2,
        "cluster_detection_method": "deactivate",
        "coordinator_bind_address": "127.0.0.1:5000",
        "shutdown_timeout_seconds": 7 * 24 * 3600,
    }


def test_only_what_this_jax_knows() -> None:
    filled = hook.fill_in(old_jax, (), {}, ENVIRON)
    assert set(filled) == {"coordinator_address", "num_processes", "process_id"}


def test_explicit_arguments_win() -> None:
    filled = hook.fill_in(
        new_jax, ("far:1", 8), {"process_id": 7, "shutdown_timeout_seconds": 5}, ENVIRON
    )
    assert filled["coordinator_address"] == "far:1"
    assert (filled["num_processes"], filled["process_id"]) == (8, 7)
    assert filled["shutdown_timeout_seconds"] == 5
    assert "coordinator_bind_address" not in filled


def test_a_local_address_of_the_programs_own_is_bound_locally() -> None:
    filled = hook.fill_in(new_jax, ("localhost:10000", 4, 1), {}, ENVIRON)
    assert filled["coordinator_bind_address"] == "localhost:10000"


def test_an_explicit_bind_address_wins() -> None:
    environ = {**ENVIRON, "JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:5000"}
    assert "coordinator_bind_address" not in hook.fill_in(new_jax, (), {}, environ)


def test_the_start_timeout_is_jaxs_too() -> None:
    environ = {**ENVIRON, "MCJAX_HOOK_JOIN_TIMEOUT": "40.0"}
    assert hook.fill_in(new_jax, (), {}, environ)["initialization_timeout"] == 40


def run(jobs: Jobs, program: str, **env: str) -> str:
    ended = jobs.run("--no-prefix", sys.executable, "-c", program, env=env)
    assert ended.status == 0, ended.stderr
    return ended.stdout


def test_the_users_sitecustomize_still_runs(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'")
    program = "import sitecustomize, sys; print(mine, sitecustomize.__file__, '_mcjax_launch' in sys.modules)"
    assert run(jobs, program, PYTHONPATH=str(tmp_path)) == f"ran {tmp_path}/sitecustomize.py True\n"


def test_it_stays_out_of_the_way(jobs: Jobs) -> None:
    program = """
import sys
here = [entry for entry in sys.path if 'mcjax_launch/hook' in entry]
print(here, sorted({'jax', 'json', 'socket', 'threading'} & set(sys.modules)))
"""
    assert run(jobs, program) == "[] []\n"


EXITS = {
    "import sys; sys.exit(3)": 3,
    "raise SystemExit(3)": 3,
    "exit(3)": 3,
    "import os; os._exit(3)": 3,
    "from sys import exit; exit(None)": 0,
    "import sys; sys.exit(0)": 0,
    "import threading, sys; t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()": 0,
    "import sys\ntry: sys.exit(3)\nexcept SystemExit: pass": 0,
}


@pytest.mark.parametrize("program", EXITS)
def test_exits_without_jax_are_as_ever(jobs: Jobs, program: str) -> None:
    ended = jobs.run(sys.executable, "-c", program)
    assert ended.status == EXITS[program]


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


@pytest.mark.jax
@pytest.mark.parametrize("name", LEAVING)
def test_every_way_out_is_seen(jobs: Jobs, name: str) -> None:
    """JAX's barrier would hold each of them up for as long as rank 0 waits."""
    body = LEAVING[name] if name == "main" else "start()\n" + LEAVING[name]
    ended = jobs.run("-n", 2, "--grace", "0.2", sys.executable, "-c", START + body, limit=30)
    assert ended.status == 3, ended.stderr
    assert "rank 1 failed: it exited with status 3" in ended.report
    assert "Exception" not in ended.stderr


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


@pytest.mark.jax
@pytest.mark.parametrize("name", STAYING)
def test_what_is_no_way_out(jobs: Jobs, name: str) -> None:
    program = START + "jax.distributed.initialize()\n" + STAYING[name]
    ended = jobs.run("-n", 1, sys.executable, "-c", program)
    assert ended.status == 0, ended.stderr
    assert ended.report == ""
    if name != "in atexit":  # of which Python itself says something
        assert ended.stderr == ""


@pytest.mark.jax
def test_a_mistake_that_jax_reports_is_not_waited_for(jobs: Jobs) -> None:
    program = "import jax; jax.distributed.initialize(num_processes=1, process_id=2)"
    ended = jobs.run("-n", 2, "--grace", "0.5", sys.executable, "-c", program, limit=30)
    assert ended.status == 1
    assert "process_id" in ended.report


def test_a_pythonpath_of_the_users_own(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    program = "import sys, mine; print('_mcjax_launch' in sys.modules)"
    ended = jobs.run("-x", f"PYTHONPATH={tmp_path}", sys.executable, "-c", program)
    assert ended.stdout == "[0] True\n", ended.stderr


def test_a_launch_within_a_rank(jobs: Jobs) -> None:
    """It is a job of its own: neither the outer's options nor its coordinates nor its hook."""
    show = "env | grep -cE '^MCJAX_(HOOK|NUM|LOG)|JAX_PROCESS_ID=1'; true"
    inner = f'{sys.executable} -m mcjax_launch --no-hook --no-prefix sh -c "{show}"'
    env = {"MCJAX_NUM_PROCESSES": "2", "MCJAX_NO_PREFIX": "1"}
    assert jobs.run("sh", "-c", inner, env=env).stdout == "0\n0\n"


def test_a_syntax_error_is_named(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def (\n")
    assert "rank 0 failed: SyntaxError: " in jobs.run(tmp_path / "bad.py").report
