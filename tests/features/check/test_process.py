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
from jobs import Ended, Jobs, eventually, shell_script
from remote import FAKE_SSH

# A jax that knows its devices, and nothing else.
STAND_IN = """
class _Device:
    platform, device_kind = "cpu", "pretended"

def local_devices():
    return [_Device(), _Device()]
"""
# A Python whose clock, as the agent reads it, is ahead.
AHEAD = """
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


def some_hosts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "hosts.txt"
    path.write_text("\n".join(lines))
    return path


def findings(ended: Ended) -> list[str]:
    """What it has printed, a line each without what is to be done about it."""
    text = re.sub(r"\n {22}(?!- )", " ", ended.stdout)
    return [re.sub(" +", " ", line) for line in text.splitlines() if line[:1] != " "]


def test_check_fails_if_no_host_answers(jobs: Jobs) -> None:
    ended = over(jobs, "h[1-3]", FAKE_SSH="key")
    assert (ended.status, ended.stderr) == (1, "")
    [lost, none, _, _] = findings(ended)
    assert lost.startswith(
        "error hosts h1, h2, h3: me@h1: Permission denied (publickey). (it needs"
    )
    assert none == "note sum not run: see hosts"


def test_check_examines_each_host_despite_failures_of_others(
    jobs: Jobs, tmp_path: Path, bare: str
) -> None:
    """One host is lost, one has no jax, one another version; yet each is looked at."""
    old = environment(tmp_path / "old", jax="0.9.0", jaxlib="0.9.0")
    new = environment(tmp_path / "new", jax="0.10.2", jaxlib="0.10.2")
    two = f"a python={new}", f"b python={new}"
    others = f"c python={old}", f"d python={bare}", "e", f"f python={new} chdir=/no/where"
    path = tmp_path / "made" / "check.json"
    options = ["-x", "A=secret", "--report", path]
    ended = over(jobs, some_hosts(tmp_path, *two, *others), *options, FAKE_SSH="key@e")
    assert (ended.status, ended.stderr) == (1, "")
    data = json.loads(path.read_text())
    assert (data["format"], data["version"], data["passed"]) == ("mcjax-launch check", 2, False)
    assert "A=..." in data["command"]
    found = {
        (finding["topic"], *finding["hosts"]): (finding["verdict"], finding["value"])
        for finding in data["findings"]
    }
    assert found["hosts", "e"][1].startswith("me@e: Permission denied")
    assert found["interpreter", "a", "b", "f"] == ("ok", str(new))
    assert found["jax", "a", "b", "f"] == ("ok", "0.10.2, jaxlib 0.10.2")
    elsewhere = "0.9.0, jaxlib 0.9.0; elsewhere 0.10.2, jaxlib 0.10.2"
    assert found["jax", "c"] == ("error", elsewhere)
    assert found["python", "d"] == ("error", f"{bare} has no jax")
    nowhere = "/no/where: no such directory; make it, or choose another with -C or chdir="
    assert found["start", "f"] == ("error", nowhere)
    assert found["devices", "a", "b", "c", "f"] == ("ok", "2 pretended")
    assert found["cores", "a", "b", "c", "d", "f"][1] == str(len(os.sched_getaffinity(0)))
    assert found["clock", "a", "b", "c", "d", "f"][0] == "ok"
    assert found["sum",] == ("note", "not run: see hosts, start, python, jax")


def test_check_warns_of_a_wrong_clock(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    ahead = shell_script(tmp_path / "ahead", AHEAD.format(python=bare))
    ended = over(jobs, some_hosts(tmp_path, f"a python={bare}", f"b python={ahead}"))
    assert re.search(r"\nwarning  clock        b: (100|99)\.\d s ahead of", ended.stdout)


def test_check_lists_visible_gpus(jobs: Jobs, tmp_path: Path, bare: str) -> None:
    """As nvidia-smi lists them, and as far as the environment lets a program see them."""
    listed = tmp_path / "bin" / "nvidia-smi"
    listed.parent.mkdir()
    shell_script(
        listed,
        '[ "$1" = --query-gpu=index,uuid,name,driver_version,memory.free,memory.total ] || exit 1\n'
        "for n in 0 1 2 3; do\n"
        '  echo "$n, GPU-$n, NVIDIA H100 80GB HBM3, 535.104.05, 9000, 81559"\n'
        "done",
    )
    new = environment(tmp_path / "new", jax="0.10.2", jaxlib="0.10.2")
    hosts = some_hosts(tmp_path, f"a python={new}", f"b python={bare}")
    path = f"{listed.parent}:{os.environ['PATH']}"
    ended = over(jobs, hosts, PATH=path, CUDA_VISIBLE_DEVICES="0,2,3")
    said = findings(ended)
    assert "ok gpus a, b: 3 NVIDIA H100 80GB HBM3, driver 535.104.05" in said
    assert "warning gpus a: 3 GPUs, and JAX uses the CPU: jax has no plugin for them" in said
    assert f'- {new} -m pip install "jax[cuda12]"' in " ".join(ended.stdout.split())
    taken = "warning gpu memory a, b: other programs hold 70.9 GiB of GPUs 0,2-3"
    assert any(line.startswith(taken) for line in said)


def test_check_keeps_findings_of_a_host_that_is_lost_later(
    jobs: Jobs, tmp_path: Path, bare: str
) -> None:
    """Its agent dies while JAX counts devices. What it has said before is not forgotten."""
    deadly = environment(tmp_path / "deadly", jax="0.10.2", jaxlib="0.10.2")
    (module,) = (tmp_path / "deadly").glob("lib/python3*/site-packages/jax/__init__.py")
    module.write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    ended = over(jobs, some_hosts(tmp_path, f"a python={bare}", f"b python={deadly}"))
    assert (ended.status, ended.stderr) == (1, "")
    said = findings(ended)
    assert "error hosts b: its agent was killed by SIGKILL" in said
    assert "ok hosts 1 of 2" in "\n".join(said)
    assert "ok jax 0.10.2, jaxlib 0.10.2" in said


def test_quiet_check_prints_only_problems(jobs: Jobs, bare: str) -> None:
    ended = check(jobs, "-q", "--python", bare)
    assert ended.status == 1
    assert "ok " not in ended.stdout
    [python, *_, total, _, end] = findings(ended)
    assert python == f"error python localhost: {bare} has no jax"
    assert total == "note sum not run: see python"
    assert end.startswith("FAILED: 1 rank on 1 host, in ")


def test_irrelevant_variables_are_ignored_by_check(jobs: Jobs, bare: str) -> None:
    """Those of options that make no difference to a check are no error."""
    ended = check(jobs, "--python", bare, MCJAX_LOG_DIR="x", MCJAX_WRAP="env", MCJAX_STDIN="all")
    assert (ended.status, ended.stderr) == (1, "")
    assert not Path("x").exists()


def test_interrupt_ends_the_check(jobs: Jobs) -> None:
    running = jobs.start(
        *("--check", "--hosts", "a,b", "--via", FAKE_SSH), env={"FAKE_SSH": "hang"}
    )
    launcher = psutil.Process(running.process.pid)
    eventually(lambda: len(launcher.children()) == 2)
    running.signal(signal.SIGTERM)
    ended = running.finish()
    assert (ended.status, ended.out) == (143, b"")
    assert ended.report == "stopped by SIGTERM"
