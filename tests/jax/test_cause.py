"""The root cause, on real JAX: which rank failed first, and why."""

import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import LAUNCHER, PROGRAMS, Jobs

OPTIONS = ["-n", 3, "-d", 1, "--grace", "1"]


def report(jobs: Jobs, *words: object, **how: Any) -> str:
    ended = jobs.run(*OPTIONS, *words, **how)
    assert ended.status != 0
    assert "Traceback" not in ended.report or ended.report.count("Traceback") == 1
    return ended.report


OTHER_ADDRESS = """
import os, jax
odd = os.environ["JAX_PROCESS_ID"] == "1"
mine = {"coordinator_address": "127.0.0.1:1"} if odd else {}
jax.distributed.initialize(initialization_timeout=5, **mine)
"""


def test_differing_coordinator_address_is_named(jobs: Jobs) -> None:
    found = report(jobs, sys.executable, "-c", OTHER_ADDRESS)
    assert "<string>:5 with coordinator_address=127.0.0.1:1, where the others have " in found


ENVIRONMENT = {"XLA_FLAGS": "--xla_cpu_collective_timeout_seconds=3"}
LEAVING = {
    "never": "rank 1 exited with 0 without calling initialize(), but ranks 0,2 wait for it\n",
    "_exit in a collective": "rank 1 exited with 0 without leaving the job (as os._exit() does)",
    "late": "rank 1 did not reach a collective in which others gave up waiting; it ",
    "_exit": "rank 1 exited with 0 without leaving the job (as os._exit() does)",
    "barrier": "rank 1 finished and waited in JAX's exit barrier for ranks 0,2, longer than",
    "stopped": "rank 1 stopped sending heartbeats",
}


@pytest.mark.every_jax
@pytest.mark.parametrize("way", LEAVING)
def test_only_the_leaving_or_stuck_rank_is_blamed(jobs: Jobs, way: str) -> None:
    """Nobody but its victims fails."""
    found = report(jobs, PROGRAMS / "leaving.py", way, env=ENVIRONMENT)
    if "unexpected keyword argument 'shutdown_timeout_seconds'" in found:
        pytest.skip("this jax has no such timeouts")
    assert f"\n{LEAVING[way]}" in f"\n{found}"
    assert (" last compiled at " in found) == (way == "late")
    assert "stack trace" not in found


@pytest.mark.long  # until Gloo gives up
def test_waiting_for_a_shared_compilation_is_reported(jobs: Jobs) -> None:
    """On CPU the processes' keys for one program differ, so none gets what the first compiles."""
    sharing = ["-x", "JAX_SHARE_BINARY_BETWEEN_HOSTS=1", PROGRAMS / "toy.py"]
    ended = jobs.run("-n", 2, "-d", 1, *sharing, limit=120)
    assert ended.status == 1
    [line] = [line for line in ended.report.splitlines() if " missed a collective " in line]
    assert re.fullmatch(
        r"rank 1 was waiting in the compilation of jit\(\w+\) at \S+toy.py:\d+ for another rank's "
        r"program \(jax_share_binary_between_hosts is on\), and so missed a collective in which "
        "others gave up waiting",
        line,
    )


@pytest.mark.parametrize("way", ["wrap", "group", "exit with words", "log and exit", "hard"])
def test_victims_that_handle_the_failure_are_not_blamed(jobs: Jobs, way: str) -> None:
    """Whatever they make of the loss of their peer, it is not the cause."""
    ended = jobs.run(*OPTIONS, PROGRAMS / "handled.py", way)
    shown = [line for line in ended.stderr.splitlines() if line.startswith("[")]
    if way == "hard":
        assert ended.status == 3
        assert "rank 1 failed: exit status 3" in ended.report
        assert shown[-1] == "[1] ValueError: bad batch"
    else:
        assert ended.status == 137
        assert "rank 1 failed: killed by SIGKILL" in ended.report
        assert [line for line in shown if "ERROR:root:" not in line] == []
    others = ended.report.splitlines()[-2]
    assert others.startswith(("the 2 other ranks: ", "the other rank"))
    assert "as a consequence" in others


def test_program_that_shuts_down_by_itself_is_no_failure(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 1, PROGRAMS / "in_turn.py", "shutdown")
    assert ended.status == 0
    assert "os._exit" not in ended.report


def test_second_process_of_a_rank_is_blamed(jobs: Jobs) -> None:
    """None of the two has started the other one, so each may be the rank."""
    both = f"{sys.executable} in_turn.py twice & {sys.executable} in_turn.py twice & wait -n"
    found = report(jobs, "bash", "-c", both, cwd=PROGRAMS)
    assert " called initialize() in a second process too, at in_turn.py:11: " in found


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("num_processes=3 + (rank == 1)", "num_processes=4, but the job has 3"),
        ("process_id=rank + 1", "process_id=3, which is not one of 0 to 2"),
    ],
)
def test_unrecoverable_call_ends_the_job(jobs: Jobs, arguments: str, reason: str) -> None:
    program = "import jax, os; rank = int(os.environ['JAX_PROCESS_ID'])\n"
    call = f"jax.distributed.initialize({arguments})"
    ended = jobs.run("-n", 3, "-d", 1, sys.executable, "-c", program + call)
    assert ended.status == 1
    lines = [line for line in ended.report.splitlines() if not line.startswith("hid ")]
    first, hint, *_ = lines
    assert re.fullmatch(rf"rank \d called initialize\(\) at <string>:2 with {reason}", first)
    assert hint.startswith("hint: write jax.distributed.initialize() without arguments")


def test_a_rank_ended_by_our_signal_is_not_the_cause(jobs: Jobs) -> None:
    """Ranks that handle a TERM and leave with a status of their own come after the culprit."""
    ended = jobs.run(*OPTIONS, PROGRAMS / "handling.py")
    assert ended.status == 1
    assert "rank 1 failed: " in ended.report and "DEADLINE_EXCEEDED" in ended.report
    assert ended.stdout.count("leaving with 5") == 2


@pytest.mark.parametrize("program", ["jax.jit(lambda x: x + 1)(1.0)", "jax.device_count()"])
def test_a_job_that_never_calls_initialize_gets_a_note(jobs: Jobs, program: str) -> None:
    ended = jobs.run("-n", 2, "-d", 1, sys.executable, "-c", f"import jax; print({program})")
    assert ended.status == 0
    assert ended.report == (
        "no rank called jax.distributed.initialize(): these ran as 2 separate single-process jobs"
    )


def test_an_exception_of_all_ranks_is_reported_once(jobs: Jobs) -> None:
    # A rank that comes later than the end of the job begins says that it got a SIGTERM.
    ended = jobs.run("-n", 4, "-d", 1, "--grace", 10, PROGRAMS / "mistaken.py", "shapes")
    assert ended.status == 1
    *of_late, hid, first, place, _ = ended.report.splitlines()
    follow_on = re.compile(r"hid \d+ lines? of follow-on errors; -v shows them")
    assert all(map(follow_on.fullmatch, of_late))
    assert re.fullmatch(r"hid \d+ lines of the same error in ranks [\d,-]+; -v shows them", hid)
    assert first.startswith("4 ranks failed: TypeError: ")
    assert place.endswith("mistaken.py:18 in step: return a @ b")
    assert ended.stderr.count("Traceback") == 1
    assert "mcjax_launch/kernel" not in ended.stderr  # nor the hook's own frames


MISTAKES = {
    "import": (
        "ModuleNotFoundError: No module named 'no_such_module'",
        "mistaken.py:10 in <module>",
    ),
    "touched": (
        "RuntimeError: ",
        "mistaken.py:12: jax.devices(); call jax.distributed.initialize() first\n",
    ),
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
    "import": (
        {"train.py": "import jax\nimport pkg\n{CALL}", "pkg/__init__.py": "import jax\nN = jax.devices()"},
        "`import pkg` at train.py:2 has started a backend (at pkg/__init__.py:2: N = jax.devices())",
    ),
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
    for preload in ("none", "auto"):
        ended = jobs.run("-n", 1, "-d", 1, "--preload", preload, "train.py", cwd=tmp_path)
        assert ended.status == 1
        assert f"\nhint: {said}" in ended.report, ended.stderr


def test_port_in_use_is_hinted_at(jobs: Jobs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = report(jobs, PROGRAMS / "mistaken.py", "port", f"127.0.0.1:{port}")
    assert "rank 0 failed: " in found
    assert "SIGSEGV" in found or "Failed to start RPC server" in found  # jax has both ends
    assert "hint: the port is in use" in found


CGROUP = Path("/sys/fs/cgroup/memory")  # version 1; of version 2 we would need to own one


@pytest.mark.long
@pytest.mark.skipif(
    not (os.access(CGROUP, os.W_OK) and (CGROUP / "memory.limit_in_bytes").exists()),
    reason="needs root and memory cgroups (version 1)",
)
def test_rank_killed_for_its_memory_is_recognized(jobs: Jobs) -> None:
    own = CGROUP / f"test-{os.getpid()}"
    own.mkdir()
    try:
        (own / "memory.limit_in_bytes").write_text(str(2 << 30))
        into = f'echo $$ > {own}/cgroup.procs; exec "$0" "$@"'
        job = [*map(str, OPTIONS), str(PROGRAMS / "hungry.py")]
        ended = jobs.run(*job, launcher=["bash", "-c", into, *LAUNCHER])
    finally:
        own.rmdir()
    assert ended.status == 137, ended.stderr
    words = "rank 1 failed: killed by SIGKILL (the kernel's out-of-memory killer ended "
    assert words in ended.report
    assert "(2048 MiB)" in ended.report


@pytest.mark.parametrize("without", [0, 2])
def test_rank_without_a_gpu_is_named(jobs: Jobs, without: int) -> None:
    """It uses the CPU without a word, and another one fails; said at once, and in the end."""
    words = ["-n", 3, "--grace", "1", PROGRAMS / "without_gpu.py", 3, without]
    ended = jobs.run(*words)
    assert ended.status == 1, ended.stderr
    lines = ended.report.splitlines()
    assert lines[0].startswith(f"rank {without} uses the CPU, ")
    assert f"rank {without} uses the CPU: the others waited for its cuda devices" in lines
