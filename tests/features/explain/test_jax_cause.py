"""The root cause, on real JAX: which rank failed first, and why."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jobs import LAUNCHER, PROGRAMS, Jobs, eventually
from rows import rows

OPTIONS = ["-n", 2, "-d", 1, "--grace", "1"]


def report(jobs: Jobs, *words: object, **how: Any) -> str:
    ended = jobs.run(*OPTIONS, *words, **how)
    assert ended.status != 0
    assert "Traceback" not in ended.report or ended.report.count("Traceback") == 1
    return ended.report


ENVIRONMENT = {"XLA_FLAGS": "--xla_cpu_collective_timeout_seconds=3"}
LEAVING = {
    "_exit in a collective": "rank 1 exited with 0 without leaving the job (as os._exit() does)",
    # On a busy machine JAX may end it before it has said where it is.
    "late": "rank 1 did not reach a collective in which others gave up waiting",
    "_exit": "rank 1 exited with 0 without leaving the job (as os._exit() does)",
    "barrier": "rank 1 finished and waited in JAX's exit barrier for rank 0, longer than",
    "stopped": "rank 1 stopped sending heartbeats",
}


@pytest.mark.skipif(version("jax").startswith("0.6."), reason="this jax has no such timeouts")
@pytest.mark.parametrize("way", rows(LEAVING, "late", "_exit", "stopped"))
def test_only_the_leaving_or_stuck_rank_is_blamed(jobs: Jobs, way: str) -> None:
    """Nobody but its victims fails."""
    found = report(jobs, PROGRAMS / "leaving.py", way, env=ENVIRONMENT)
    assert f"\n{LEAVING[way]}" in f"\n{found}"
    assert "stack trace" not in found


@pytest.mark.long  # until Gloo gives up
def test_waiting_for_a_shared_compilation_is_reported(jobs: Jobs, tmp_path: Path) -> None:
    """On CPU the processes' keys for one program differ, so none gets what the first compiles."""
    sharing = ["-x", "JAX_SHARE_BINARY_BETWEEN_HOSTS=1", PROGRAMS / "toy.py"]
    assert jobs.run("-n", 2, "-d", 1, *sharing).status == 0  # without a cache JAX shares nothing
    cache = ["-x", f"JAX_COMPILATION_CACHE_DIR={tmp_path}"]
    always = ["-x", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"]
    ended = jobs.run("-n", 2, "-d", 1, *cache, *always, *sharing, limit=120)
    assert ended.status == 1
    assert re.search(
        "rank 1 did not reach a collective in which others gave up waiting"
        r"(; it was (compiling|in) assert_equal at \S*toy.py:\d+)?\n",
        ended.report,
    )


CLEAN_UP = """
import sys, jax, numpy as np
from jax.experimental import multihost_utils as mu
jax.distributed.initialize()
class Saved:
    def __enter__(self): pass
    def __exit__(self, *error):
        if jax.process_index() == 1: mu.sync_global_devices("final save")
with Saved():
    for step in range(1000):
        if step == 3 and jax.process_index() == 1: raise ValueError("bad batch 17")
        mu.process_allgather(np.ones(3) * step)
"""


@pytest.mark.skipif(
    version("jax").startswith("0.6."), reason="there Gloo waits, and the hang is shown"
)
def test_exception_whose_clean_up_waits_for_others_is_the_cause(jobs: Jobs, tmp_path: Path) -> None:
    """Gloo aborts the rank, or raises in it, before Python has reported the exception."""
    (tmp_path / "t.py").write_text(CLEAN_UP)
    found = report(jobs, "t.py", cwd=tmp_path)
    assert "\nrank 1 raised ValueError: bad batch 17, at " in f"\n{found}"
    assert "; then its clean-up waited for other ranks at t.py:8\n" in found


def test_victim_that_handles_the_failure_is_not_blamed(jobs: Jobs) -> None:
    """Whatever it makes of the loss of its peer, it is not the cause."""
    ended = jobs.run(*OPTIONS, PROGRAMS / "handled.py")
    shown = [line for line in ended.stderr.splitlines() if line.startswith("[")]
    assert ended.status == 137
    assert "rank 1 failed: killed by SIGKILL" in ended.report
    assert [line for line in shown if "ERROR:root:" not in line] == []
    others = ended.report.splitlines()[-2]
    assert others.startswith("the other rank")
    assert "as a consequence" in others


MISTAKES = {
    "touched": (
        "RuntimeError: ",
        "mistaken.py:10: jax.devices(); call jax.distributed.initialize() first\n",
    ),
    "shapes": ("2 ranks failed: TypeError: ", "mistaken.py:16 in step: return a @ b"),
    "memory": ("ranks failed: ", "hint: out of memory: use less per device"),
}


@pytest.mark.every_jax
@pytest.mark.parametrize("way", MISTAKES)
def test_common_mistakes_get_a_hint(jobs: Jobs, way: str) -> None:
    # All that make the same mistake get the time for it, on a busy machine too.
    found = report(jobs, "--grace", 10, PROGRAMS / "mistaken.py", way)
    for words in MISTAKES[way]:
        assert words in found


# What starts a backend before initialize(): the files of a program, and what is said of it.
EARLY = {
    "deep in a library": (
        {
            "train.py": "import sys, jax\nsys.path.append('site-packages')\nfrom own import *\n{CALL}",
            "own/__init__.py": "def load():\n  import lib\nload()",
            "site-packages/lib.py": "import jax.numpy\ndef f():\n  return jax.numpy.ones(3)\nf()",
        },
        "`from own import *` at train.py:3 has started a backend (at lib.py:3: return jax.numpy.ones(3))",
    ),
    "handled": (
        {"train.py": "import sys, jax\njax.devices()\ntry: {CALL}\nexcept RuntimeError: sys.exit('alone')"},
        "a backend was started before, at train.py:2: jax.devices(); call ",
    ),
}  # fmt: skip


@pytest.mark.every_jax
@pytest.mark.parametrize("name", EARLY)
def test_cause_of_an_early_backend_is_named(jobs: Jobs, tmp_path: Path, name: str) -> None:
    files, said = EARLY[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text.replace("{CALL}", "jax.distributed.initialize()"))
    ended = jobs.run("-n", 1, "-d", 1, "train.py", cwd=tmp_path)
    assert ended.status == 1
    assert f"\nhint: {said}" in ended.report, ended.stderr


def test_port_in_use_is_hinted_at(jobs: Jobs) -> None:
    with socket.create_server(("", 0)) as taken:
        address = f"{socket.gethostname()}:{taken.getsockname()[1]}"  # not localhost's placeholder
        found = report(jobs, PROGRAMS / "mistaken.py", "port", address)
    assert "rank 0 failed: " in found
    assert "SIGSEGV" in found or "Failed to start RPC server" in found  # jax has both ends
    assert "hint: the port is in use" in found


CGROUP = Path("/sys/fs/cgroup/memory")  # version 1; of version 2 we would need to own one


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group with 1 GiB; a test names it before `jobs`, whose processes end first."""
    own = CGROUP / f"test-{os.getpid()}"
    own.mkdir()
    (own / "memory.limit_in_bytes").write_text(str(1 << 30))
    yield own
    eventually(lambda: is_removed(own))


def is_removed(group: Path) -> bool:
    """Whether a control group could be removed: the kernel keeps it until all there have ended."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@pytest.mark.long
@pytest.mark.skipif(
    not (os.access(CGROUP, os.W_OK) and (CGROUP / "memory.limit_in_bytes").exists()),
    reason="needs root and memory cgroups (version 1)",
)
def test_rank_killed_for_its_memory_is_recognized(little_memory: Path, jobs: Jobs) -> None:
    into = f'echo $$ > {little_memory}/cgroup.procs; exec "$0" "$@"'
    job = [*map(str, OPTIONS), str(PROGRAMS / "hungry.py")]
    ended = jobs.run(*job, launcher=["bash", "-c", into, *LAUNCHER], limit=110)
    assert ended.status == 137, ended.stderr
    words = "rank 1 failed: killed by SIGKILL (the kernel's out-of-memory killer ended "
    assert words in ended.report
    assert "(1024 MiB)" in ended.report


def test_rank_without_a_gpu_is_named(jobs: Jobs) -> None:
    """It uses the CPU without a word, and another one fails; said at once, and in the end."""
    ended = jobs.run("-n", 3, "--grace", "1", PROGRAMS / "without_gpu.py", 3, 0)
    assert ended.status == 1, ended.stderr
    lines = ended.report.splitlines()
    assert any(line.startswith("rank 0 uses the CPU, ") for line in lines)
    assert "rank 0 uses the CPU: the others waited for its cuda devices" in lines
