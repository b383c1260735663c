"""--check over stand-ins for hosts, none of which can run JAX: the sum is in tests/jax."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from jobs import Ended, Jobs, eventually
from remote import FAKE_SSH

# A jax that knows its devices, and nothing else.
STAND_IN = """
class _Device:
    platform, device_kind = "cpu", "pretended"

def local_devices():
    return [_Device(), _Device()]
"""
# A Python whose clock, as the agent reads it, is ahead.
AHEAD = """#!/bin/sh
if [ "$1" = -I ]; then
    exec {python} -I -S -c "import time; _t = time.time; time.time = lambda: _t() + 100
$4"
fi
exec {python} "$@"
"""


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python without jax."""
    return str(environment(tmp_path / "bare"))


def environment(folder: Path, **versions: str) -> Path:
    """An environment of its own, with stand-ins for these packages; its Python."""
    command = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)]
    subprocess.run(command, check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name, version in versions.items():
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(STAND_IN)
        (packages / name / "version.py").write_text(f'_version = "{version}"\n')
    return folder / "bin" / "python"


def check(jobs: Jobs, *args: object, **env: str) -> Ended:
    return jobs.run("--check", *args, env=env)


def over(jobs: Jobs, hosts: object, *args: object, **env: str) -> Ended:
    return check(jobs, "--via", FAKE_SSH, "--hosts", hosts, *args, **env)


def test_a_host_without_jax(jobs: Jobs, bare: str) -> None:
    ended = check(jobs, "--python", bare)
    assert (ended.status, ended.stderr) == (1, "")
    assert f"localhost: {bare} has no jax; install it there" in " ".join(ended.stdout.split())
    assert "\nok       hosts       1 host answers" in ended.stdout
    assert "\nnot run  sum         see jax\n" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("FAILED (jax)")


def test_all_hosts_that_do_not_answer_are_told(jobs: Jobs) -> None:
    ended = over(jobs, "h[1-8],other", FAKE_SSH="key")
    assert (ended.status, ended.stderr) == (1, "")
    assert "9 of 9 hosts cannot be used" in ended.stdout
    assert "- h[1-8],other: me@h1: Permission denied (publickey). (it needs a key" in ended.stdout
    assert ended.seconds < 20


def test_what_can_be_found_out_is(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    """One host is lost, one has no jax, one another version; yet each is looked at."""
    old = environment(tmp_path / "old", jax="0.9.0", jaxlib="0.9.0")
    new = environment(tmp_path / "new", jax="0.10.2", jaxlib="0.10.2")
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(
        f"a python={new}\nb python={new}\nc python={old}\nd python={bare}\n"
        f"e\nf python={new} chdir=/no/where\n"
    )
    path = tmp_path / "made" / "check.json"
    ended = over(jobs, hosts, "--report", path, FAKE_SSH="key@e")
    assert (ended.status, ended.stderr) == (1, "")
    text = " ".join(ended.stdout.split())
    for words in (
        "- e: me@e: Permission denied",
        f"- d: {bare} has no jax; install it there",
        "- c: jax 0.9.0, elsewhere 0.10.2",
        "- c: jaxlib 0.9.0, elsewhere 0.10.2",
        "- f: /no/where: no such directory",
        "ok devices 8 pretended in all",
        "coordinator at 127.0.0.1",
        "not run sum see hosts, jax, start",
    ):
        assert words in text, ended.stdout
    table = [line.split() for line in ended.stdout.splitlines()[:6]]
    assert [row[0] for row in table[1:5]] == ["a,b,f", "c", "d", "e"]
    assert table[2][2:4] == ["0.9.0", "!"]
    data = json.loads(path.read_text())
    assert (data["format"], data["passed"]) == ("mcjax-launch check", False)
    a, _, c, d, e, f = data["hosts"]
    assert a["python"]["path"] == str(new)
    assert a["devices"] == [{"platform": "cpu", "kind": "pretended", "count": 2}]
    assert c["python"]["packages"] == {"jax": "0.9.0", "jaxlib": "0.9.0"}
    assert d["python"]["error"] == "has no jax"
    assert (e["reached"], e["python"]) == (False, None)
    assert f["refused"] == [
        "/no/where: no such directory; make it, or choose another with -C or chdir="
    ]
    assert a["cores"] == len(os.sched_getaffinity(0))
    assert 0 < a["free_kib"] <= a["memory_kib"]
    assert abs(a["clock_ahead_s"]) <= a["clock_error_s"] + 0.1
    assert data["sum"]["started"] is False


def test_a_clock_that_is_wrong(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    ahead = tmp_path / "ahead"
    ahead.write_text(AHEAD.format(python=bare))
    ahead.chmod(0o700)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"a python={bare}\nb python={ahead}\n")
    ended = over(jobs, hosts)
    assert "- b: 100.0 s ahead of the launcher's" in ended.stdout
    assert re.search(r"\+(100|99)[.0-9]* s !", ended.stdout), ended.stdout


def test_a_python_that_does_not_run(jobs: Jobs, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'a library is missing' >&2; exit 1\n")
    broken.chmod(0o700)
    ended = check(jobs, "--python", broken)
    assert ended.status == 1
    text = " ".join(ended.stdout.split())
    assert f"localhost: {broken} does not run: a library is missing" in text


def test_gpus(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    """As nvidia-smi lists them, and as far as the environment lets a program see them."""
    listed = tmp_path / "bin" / "nvidia-smi"
    listed.parent.mkdir()
    listed.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --query-gpu=index,uuid,name,driver_version,memory.free,memory.total ] || exit 1\n'
        "for n in 0 1 2 3; do\n"
        '  echo "$n, GPU-$n, NVIDIA H100 80GB HBM3, 535.104.05, 9000, 81559"\n'
        "done\n"
    )
    listed.chmod(0o700)
    new = environment(tmp_path / "new", jax="0.10.2", jaxlib="0.10.2")
    options = ["--python", new, "-C", "/no/where", "--report", tmp_path / "check.json"]
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"a python={new}\nb python={bare}\n")
    for visible, count in (("0,1,2,3", 4), ("2", 1)):
        path = f"{listed.parent}:{os.environ['PATH']}"
        ended = over(jobs, hosts, *options, PATH=path, CUDA_VISIBLE_DEVICES=visible)
        a, _ = json.loads((tmp_path / "check.json").read_text())["hosts"]
        gpu = {"name": "NVIDIA H100 80GB HBM3", "driver": "535.104.05", "count": count}
        assert a["gpus"] == [gpu]
        numbers = [one["number"] for one in a["gpu_memory"]]
        assert numbers == [int(number) for number in visible.split(",")]
        text = " ".join(ended.stdout.split())
        many = "4 GPUs" if count == 4 else "1 GPU"
        assert f"- a: {many}, but no plugin for jax, so it uses the CPU: {new} -m pip" in text
        whose = "a,b: other programs hold" if count == 4 else "a,b: another program holds"
        assert f"- {whose} 70.9 of 79.6 GiB of GPU" in text


def test_a_host_that_is_lost_meanwhile(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    """Its agent dies of the question about its Python."""
    deadly = tmp_path / "deadly"
    deadly.write_text(f'#!/bin/sh\n[ "$1" = -c ] && kill -9 $PPID\nexec {bare} "$@"\n')
    deadly.chmod(0o700)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"a python={bare}\nb python={deadly}\nc python={bare}\n")
    ended = over(jobs, hosts)
    assert (ended.status, ended.stderr) == (1, "")
    text = " ".join(ended.stdout.split())
    assert "FAILED hosts 1 of 3 hosts cannot be used" in text
    assert "- b: its agent was killed by SIGKILL" in text
    assert f"- a,c: {bare} has no jax" in text


def test_a_host_that_is_lost_at_last(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    """Its agent dies while JAX counts devices: what it has said before is not forgotten."""
    deadly = environment(tmp_path / "deadly", jax="0.10.2", jaxlib="0.10.2")
    (module,) = (tmp_path / "deadly").glob("lib/python3*/site-packages/jax/__init__.py")
    module.write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"a python={bare}\nb python={deadly}\n")
    ended = over(jobs, hosts)
    assert (ended.status, ended.stderr) == (1, "")
    text = " ".join(ended.stdout.split())
    assert "- b: its agent was killed by SIGKILL" in text
    assert "0.10.2" in text


def test_a_port_that_is_taken(jobs: Jobs, bare: str) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = check(jobs, "--python", bare, "--coordinator", place)
    assert ended.status == 1
    assert "is in use; choose another with --coordinator" in " ".join(ended.stdout.split())


def test_quiet(jobs: Jobs, bare: str) -> None:
    ended = check(jobs, "-q", "--python", bare)
    assert ended.status == 1
    assert "ok " not in ended.stdout and "HOST" not in ended.stdout
    assert ended.stdout.startswith("FAILED   jax ")


REFUSED = {
    "x.py": "--check runs a program of its own: leave out x.py, or --check",
    "-m json": "--check runs a program of its own: leave out json, or --check",
    "--wrap env": "--check cannot be combined with --wrap",
    "--log-dir x": "--check cannot be combined with --log-dir",
    "--dry-run": "--check cannot be combined with --dry-run",
    "--max-restarts 2": "--check cannot be combined with --max-restarts",
    "--num-hosts 2 --coordinator a:1": "--check needs one launcher for all hosts: leave out",
    "--report x.html": "--report x.html: with --check the name must end in .json",
    "--report {job_id}.json": "--report {job_id}.json: --check fills in no placeholders",
    "--hosts no/hosts.txt": "--hosts no/hosts.txt: no such file",
    "--via sh": "--via sh: no hosts to reach",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(jobs: Jobs, words: str) -> None:
    ended = check(jobs, *words.split())
    assert (ended.status, ended.out) == (2, b"")
    assert ended.report.startswith(REFUSED[words])
    assert len(ended.stderr.splitlines()) == 1


def test_variables_for_many_command_lines(jobs: Jobs, bare: str) -> None:
    """Those of options that make no difference to a check are no error."""
    ended = check(jobs, "--python", bare, MCJAX_LOG_DIR="x", MCJAX_WRAP="env", MCJAX_STDIN="all")
    assert (ended.status, ended.stderr) == (1, "")
    assert not Path("x").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt(jobs: Jobs, signum: int) -> None:
    running = jobs.start(
        *("--check", "--hosts", "a,b", "--via", FAKE_SSH), env={"FAKE_SSH": "hang"}
    )
    launcher = psutil.Process(running.process.pid)
    eventually(lambda: len(launcher.children()) == 2)
    running.signal(signum)
    ended = running.finish()
    assert (ended.status, ended.out) == (128 + signum, b"")
    assert ended.report == f"stopped by {signal.Signals(signum).name}"
