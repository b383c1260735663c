"""The hook inside a rank's Python."""

import sys
from pathlib import Path

import pytest
from jobs import Jobs

import mcjax_launch

sys.path.append(str(Path(mcjax_launch.__file__).parent / "rank"))
import mcjax_rank_hook as hook

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
    program = "import sitecustomize, sys; print(mine, sitecustomize.__file__, 'mcjax_rank_hook' in sys.modules)"
    assert run(jobs, program, PYTHONPATH=str(tmp_path)) == f"ran {tmp_path}/sitecustomize.py True\n"


def test_it_stays_out_of_the_way(jobs: Jobs) -> None:
    program = """
import sys
here = [entry for entry in sys.path if 'mcjax_launch/rank' in entry]
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


PREAMBLE = "import sys, threading, jax; jax.distributed.initialize()\n"
# How a program may deal with SystemExit after initialize(), and what must come of it.
JAX_EXITS = {
    "caught": ("try: sys.exit(3)\nexcept SystemExit as e: print('caught', e.code)", 0),
    "caught from below": (
        "import argparse\ntry: argparse.ArgumentParser().error('x')\nexcept SystemExit: print('caught')",
        0,
    ),
    "in a thread": ("t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", 0),
    "held": ("class Held: pass\ntry: sys.exit(3)\nexcept SystemExit as e: Held.e = e; raise", 3),
    "from a function": ("def main(): return 4\nif __name__ == '__main__': raise SystemExit(main())", 4),
    "finally": ("try: sys.exit(5)\nfinally: print('cleaned')", 5),
    "zero": ("raise SystemExit(0)", 0),
    "names": ("assert SystemExit.__name__ == 'SystemExit' and issubclass(SystemExit, BaseException)", 0),
}  # fmt: skip


@pytest.mark.jax
@pytest.mark.parametrize("name", JAX_EXITS)
def test_exits_after_initialize(jobs: Jobs, name: str) -> None:
    """One rank would end in any case; what is told about the end must be right."""
    body, status = JAX_EXITS[name]
    ended = jobs.run(sys.executable, "-c", PREAMBLE + body)
    assert ended.status == status, ended.stderr
    assert "Exception in thread" not in ended.stderr
    assert ("rank 0 failed" in ended.report) == (status != 0)
