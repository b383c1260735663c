"""Where rank 0 of a local job listens: real launchers and sockets, and a stand-in for jax."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import LAUNCHER, Ended, Jobs
from stand_in_jax import BARE, BIND, EXPLICIT, make_stand_in

REFUSES = "assert not coordinator_address.startswith('unix:'), 'no such address'"


def run(jobs: Jobs, folder: Path, *options: object, program: str = "", **env: str) -> str:
    """What two ranks print that call initialize(), as `program` does, with the stand-in."""
    code = f"import os, jax\nrank = os.environ['JAX_PROCESS_ID']\n{program or BARE}"
    words = ["-n", 2, *options, sys.executable, "-c", code]
    ended = jobs.run(*words, env={"PYTHONPATH": str(folder), **env})
    assert ended.status == 0, ended.stderr
    return ended.stdout


def test_bare_initialize_uses_a_socket(jobs: Jobs, stand_in: Path) -> None:
    shown = run(jobs, stand_in)
    assert shown.count("at unix:/") == 2
    assert "[0] listens on unix:/" in shown


def test_address_of_another_machine_is_named(jobs: Jobs, stand_in: Path) -> None:
    call = "jax.distributed.initialize('192.0.2.7:5000', 2, int(os.environ['JAX_PROCESS_ID']))"
    words = ["-n", 2, sys.executable, "-c", f"import os, jax\n{call}"]
    env = {"PYTHONPATH": str(stand_in)}
    running = jobs.start(*words, env=env, stderr=subprocess.STDOUT)
    running.read_until("=192.0.2.7:5000, which is not an address of its machine\n")
    running.kill_now()
    running.finish()


@pytest.mark.parametrize("first", [0, 1])
def test_rank_0_decides_on_the_coordinator_address(jobs: Jobs, stand_in: Path, first: int) -> None:
    """Whoever of the two gives the launcher's address itself, they meet."""
    program = f"{EXPLICIT} if rank == '{first}' else {BARE}"
    shown = run(jobs, stand_in, program=program)
    assert shown.count("at unix:/" if first == 1 else "at 127.0.0.1:") == 2


def test_own_address_of_the_program_is_kept(jobs: Jobs, stand_in: Path) -> None:
    shown = run(jobs, stand_in, program=EXPLICIT)
    assert "unix" not in shown
    assert "[0] listens on 127.0.0.1:" in shown


GUIDES = "jax.distributed.initialize('localhost:10000', 2, int(rank))"


@pytest.mark.parametrize("first", [None, 0, 1])
def test_placeholder_of_the_guide_stands_for_the_job(
    jobs: Jobs, stand_in: Path, first: int | None
) -> None:
    """Also if only one of the ranks names it."""
    program = GUIDES if first is None else f"{GUIDES} if rank == '{first}' else {BARE}"
    shown = run(jobs, stand_in, program=program)
    assert shown.count("at unix:/") == 2
    assert "[0] listens on unix:/" in shown


def test_placeholder_is_named_with_verbose(jobs: Jobs, stand_in: Path) -> None:
    code = f"import os, jax\nrank = os.environ['JAX_PROCESS_ID']\n{GUIDES}"
    words = ["-v", "-n", 2, sys.executable, "-c", code]
    ended = jobs.run(*words, env={"PYTHONPATH": str(stand_in)})
    line = "initialize() at <string>:3 names localhost:10000, a placeholder: using the job's own"
    assert ended.report.count(line) == 1, ended.stderr


@pytest.mark.parametrize(
    ("program", "place"), [(BARE, "a private socket"), (EXPLICIT, r"127\.0\.0\.1:\d+")]
)
def test_verbose_names_where_the_ranks_meet(
    jobs: Jobs, stand_in: Path, program: str, place: str
) -> None:
    code = f"import os, jax\nrank = os.environ['JAX_PROCESS_ID']\n{program}"
    words = ["-v", "-n", 2, sys.executable, "-c", code]
    report = jobs.run(*words, env={"PYTHONPATH": str(stand_in)}).report
    found = re.findall(r"(?:rank 0 joined|coordinator) .*", report)
    assert len(found) == 1, report
    assert re.fullmatch(f"rank 0 joined at {place}", found[0])


def test_local_service_of_the_program_is_its_own(jobs: Jobs, stand_in: Path) -> None:
    """Each rank is process 0 of another job."""
    program = "jax.distributed.initialize(f'127.0.0.1:{30_000 + os.getpid() % 9_000}', 1, 0)"
    assert "unix" not in run(jobs, stand_in, program=program)


TLS = ", mtls_cert_file=None"


@pytest.mark.parametrize("way", ["argument", "config"])
def test_no_certificate_names_a_socket(jobs: Jobs, tmp_path: Path, way: str) -> None:
    """Rank 0 decides for both ranks."""
    make_stand_in(tmp_path, BIND + TLS)
    setting = "jax.config = type('Config', (), {'jax_mtls_cert_file': 'mine.pem'})"
    program = {
        "argument": BARE.replace("()", "(mtls_cert_file='mine.pem') if rank == '0' else " + BARE),
        "config": f"{setting}\n{BARE}",
    }
    shown = run(jobs, tmp_path, program=program[way])
    assert shown.count("at 127.0.0.1:") == 2
    assert "[0] listens on 127.0.0.1:" in shown


OTHERS = {
    "a jax that has no such argument": ("", "pass"),
    "a jax that takes no such address": (BIND, REFUSES),
}


@pytest.mark.parametrize("jax", OTHERS)
def test_unsupported_jax_uses_a_tcp_coordinator(jobs: Jobs, tmp_path: Path, jax: str) -> None:
    make_stand_in(tmp_path, *OTHERS[jax])
    shown = run(jobs, tmp_path)
    assert shown.count("at 127.0.0.1:") == 2
    assert "unix" not in shown


def test_error_of_jax_is_not_hidden(jobs: Jobs, tmp_path: Path) -> None:
    make_stand_in(tmp_path, first="raise ValueError(num_processes)")
    words = ["-n", 1, sys.executable, "-c", f"import jax\n{BARE}"]
    ended = jobs.run(*words, env={"PYTHONPATH": str(tmp_path)})
    assert ended.stderr.count("ValueError: 1\n") == 2  # in the traceback, and in the summary
    assert "During handling" not in ended.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["-x", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:{coordinator_port}"],
        ["--coordinator", "127.0.0.1"],
    ],
)
def test_address_given_by_the_user_is_used(jobs: Jobs, stand_in: Path, options: list[str]) -> None:
    assert "unix" not in run(jobs, stand_in, *options)


@pytest.mark.parametrize("name", ["a" * 100, "a b%20c?#é"])
def test_socket_works_in_any_temporary_folder(jobs: Jobs, stand_in: Path, name: str) -> None:
    folder = stand_in / name
    folder.mkdir()
    shown = run(jobs, stand_in, TMPDIR=str(folder))
    assert shown.count("at unix:/tmp/mcjax-") == 2


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A temporary folder that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


NOBODY = 65534
CONNECT = """
import os, socket, sys
path = sys.argv[1]
for attempt in (lambda: socket.socket(socket.AF_UNIX).connect(path),
                lambda: os.listdir(os.path.dirname(path))):
    try: attempt()
    except PermissionError: print("refused")
"""


def test_no_other_user_can_connect(jobs: Jobs, stand_in: Path, open_to_all: Path) -> None:
    """Even one who knows the path."""
    program = f"import time, jax\n{BARE}\nprint('joined', flush=True)\ntime.sleep(60)"
    env = {"PYTHONPATH": str(stand_in), "TMPDIR": str(open_to_all)}
    running = jobs.start("-n", 2, "--no-prefix", sys.executable, "-c", program, env=env)
    shown = running.read_until("joined", 2)
    path = shown.partition("listens on unix:")[2].partition("\n")[0]
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    assert stat.S_IMODE(os.stat(Path(path).parent).st_mode) == 0o700
    words = ["/usr/bin/python3", "-c", CONNECT, path]
    if os.geteuid() == 0:  # who else may become another user?
        other = subprocess.run(words, user=NOBODY, capture_output=True, text=True, cwd="/")
        assert other.stdout == "refused\n" * 2, other.stderr
    assert subprocess.run(words, capture_output=True, text=True).stdout == ""
    running.process.terminate()
    running.finish()
    assert list(open_to_all.iterdir()) == []


# A network of its own has a loopback interface that is down.
ALONE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
DOWN = (
    "RuntimeError: mcjax-launch: the loopback interface of this machine is down, so the ranks "
    "cannot reach 127.0.0.1:"
)
CAN_BE_ALONE = shutil.which("unshare") and subprocess.call([*ALONE, "true"]) == 0


@pytest.mark.skipif(not CAN_BE_ALONE, reason="needs a network namespace of its own")
def test_missing_loopback_is_named(jobs: Jobs, stand_in: Path) -> None:
    """A rank alone needs none."""

    def started(*words: object) -> Ended:
        env = {"PYTHONPATH": str(stand_in)}
        return jobs.run(*words, launcher=[*ALONE, *LAUNCHER], env=env)

    code = [sys.executable, "-c", f"import os, jax\n{BARE}"]
    ended = started("-n", 2, *code)
    assert ended.status == 1
    (cause,) = [line for line in ended.report.splitlines() if " failed: " in line]
    assert DOWN in cause
    assert cause.endswith("; bring it up: ip link set lo up")
    assert started("-n", 1, *code).status == 0
