"""--check over stand-ins for hosts, none of which can run JAX: the sum is in tests/jax."""

import hashlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from jobs import Ended, Jobs, eventually
from remote import FAKE_SSH

# A jax that can be looked at, and whose import fails; first in as many ranks as $TOGETHER says, because
# the first failure ends those that have not yet reported what their hosts have.
STAND_IN = """\
import os, time
folder, _, ranks = os.environ.get("TOGETHER", "::0").partition("::")
if folder:
    open(os.path.join(folder, os.environ["JAX_PROCESS_ID"]), "w").close()
    while len(os.listdir(folder)) < int(ranks):
        time.sleep(0.01)
raise RuntimeError('this is no jax')
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
        (packages / f"{name}-{version}.dist-info").mkdir()
        metadata = packages / f"{name}-{version}.dist-info" / "METADATA"
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder / "bin" / "python"


def check(jobs: Jobs, *args: object, cwd: Path | None = None, **env: str) -> Ended:
    return jobs.run("--check", *args, env=env, cwd=cwd)


def over(jobs: Jobs, hosts: object, *args: object, cwd: Path | None = None, **env: str) -> Ended:
    return check(jobs, "--via", FAKE_SSH, "--hosts", hosts, *args, cwd=cwd, **env)


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
    [failed, _, end] = findings(ended)
    assert failed.startswith(
        "error reach h1, h2, h3: me@h1: Permission denied (publickey). (it needs"
    )
    assert end.startswith("FAILED: 3 ranks on 3 hosts, in ")


def test_check_examines_each_host_despite_failures_of_others(
    jobs: Jobs, tmp_path: Path, bare: str
) -> None:
    """Three hosts fail, each in its way, and one has another version; yet each is looked at."""
    old = environment(tmp_path / "old", jax="0.9.0", jaxlib="0.9.0")
    new = environment(tmp_path / "new", jax="0.10.2", jaxlib="0.10.2")
    two = f"a python={new}", f"b python={new}"
    failing = f"d python={bare}", "e", "g python=/no/python"
    others = f"c python={old}", *failing, f"f python={new} chdir=/no/where"
    path = tmp_path / "made" / "check.json"
    (tmp_path / "together").mkdir()
    options = ["-x", "A=secret", "-x", f"TOGETHER={tmp_path / 'together'}::4", "--report", path]
    ended = over(jobs, some_hosts(tmp_path, *two, *others), *options, FAKE_SSH="key@e")
    assert ended.status == 1
    data = json.loads(path.read_text())
    assert (data["format"], data["version"], data["passed"]) == ("mcjax-launch check", 3, False)
    assert "A=..." in data["command"]
    found = {
        (finding["topic"], *finding["hosts"]): (finding["verdict"], finding["value"])
        for finding in data["findings"]
    }
    assert found["reach", "e"][1].startswith("me@e: Permission denied")
    assert found["reach", "d"][1].startswith(f"{bare} has no jax")
    assert "Python not found there" in found["reach", "g"][1]
    assert found["reach",] == ("ok", "4 of 7 ready")
    assert found["python", "a", "b", "f"][1].endswith(f", {new}")
    assert found["jax", "a", "b", "f"] == ("ok", "0.10.2, jaxlib 0.10.2")
    elsewhere = "0.9.0, jaxlib 0.9.0; elsewhere 0.10.2, jaxlib 0.10.2"
    assert found["jax", "c"] == ("error", elsewhere)
    assert found["reach", "f"] == ("error", "/no/where: no such directory")
    assert found["sum",][0] == "error" and "this is no jax" in found["sum",][1]


def test_host_that_had_no_time_to_report_is_named(jobs: Jobs, tmp_path: Path) -> None:
    """The failure of another host's rank has ended its own."""
    fast, slow = (environment(tmp_path / name, jax="0.12.0") for name in ("fast", "slow"))
    (packages,) = (tmp_path / "slow").glob("lib/python3*/site-packages")
    waits = "import os, time; time.sleep(600 if 'JAX_PROCESS_ID' in os.environ else 0)\n"
    (packages / "waits.pth").write_text(waits)
    ended = over(jobs, some_hosts(tmp_path, f"a python={fast}", f"b python={slow}"))
    assert ended.status == 1
    hosts = [line for line in findings(ended) if " reach " in line]
    assert hosts[-1].startswith("error reach b: its ranks ended before they had reported ")


@pytest.mark.parametrize("words", [["train.py", "--lr", "3"], ["-m", "train"]])
def test_check_compares_copies_of_the_program(jobs: Jobs, tmp_path: Path, words: list[str]) -> None:
    python = environment(tmp_path / "env", jax="0.10.2", jaxlib="0.10.2")
    for host, text in {"a": "x = 1\n", "b": "x = 2\n", "c": "x = 1\n", "d": ""}.items():
        (tmp_path / host).mkdir()
        if text:
            (tmp_path / host / "train.py").write_text(text)
    path = tmp_path / "check.json"
    hosts = some_hosts(tmp_path, *(f"{host} python={python} chdir={host}" for host in "abcd"))
    ended = over(jobs, hosts, "--report", path, *words, cwd=tmp_path)
    assert ended.status == 1
    found = json.loads(path.read_text())["findings"]
    name, same, other = (
        words[-1],
        *(hashlib.sha256(x).hexdigest() for x in (b"x = 1\n", b"x = 2\n")),
    )
    name = "train" if words[0] == "-m" else "train.py"
    copies = {
        tuple(each["hosts"]): each for each in found if each["hosts"] and each["topic"] == "reach"
    }
    assert {hosts: (each["verdict"], each["value"]) for hosts, each in copies.items()} == {
        ("a", "c"): ("ok", f"{name}, SHA-256 {same[:12]}"),
        ("b",): (
            "error",
            f"{name}, SHA-256 {other[:12]}; elsewhere {name}, SHA-256 {same[:12]}",
        ),
        ("d",): ("error", f"{name} is not there"),
    }
    assert f"--sync {name}" in copies["d",]["cure"]


def test_check_of_a_program_that_a_job_would_send_compares_nothing(
    jobs: Jobs, tmp_path: Path, bare: str
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mcjax-launch]\nsync = ['train.py']\n")
    (tmp_path / "train.py").touch()
    ended = check(jobs, "--python", bare, "-C", tmp_path, tmp_path / "train.py", MCJAX_SYNC="x")
    assert not [line for line in findings(ended) if " SHA-256 " in line]


def test_check_keeps_findings_of_a_host_that_is_lost_later(jobs: Jobs, tmp_path: Path) -> None:
    """Its agent dies while a rank imports jax. What the rank has said before is not forgotten."""
    pythons = {host: environment(tmp_path / host, jax="0.10.2", jaxlib="0.10.2") for host in "ab"}
    modules = [*tmp_path.glob("[ab]/lib/python3*/site-packages/jax/__init__.py")]
    for module in modules:
        module.write_text("import time\ntime.sleep(1000)\n")
    (deadly,) = (tmp_path / "b").glob("lib/python3*/site-packages/jax/__init__.py")
    deadly.write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    lines = (f"{host} python={python}" for host, python in pythons.items())
    ended = over(jobs, some_hosts(tmp_path, *lines))
    assert ended.status == 1
    said = findings(ended)
    assert "ok reach 2 of 2 ready" in said
    assert "ok jax 0.10.2, jaxlib 0.10.2" in said
    (lost,) = (line for line in said if line.startswith("error sum "))
    assert "host b" in lost and "its agent was killed by SIGKILL" in lost


def test_quiet_check_prints_only_problems(jobs: Jobs, bare: str) -> None:
    ended = check(jobs, "-q", "--python", bare)
    assert ended.status == 1
    assert "ok " not in ended.stdout
    [host, _, end] = findings(ended)
    assert host.startswith(f"error reach localhost: {bare} has no jax")
    assert end.startswith("FAILED: 1 rank on 1 host, in ")


def test_irrelevant_variables_are_ignored_by_check(jobs: Jobs, bare: str) -> None:
    """Those of options that make no difference to a check are no error."""
    ended = check(jobs, "--python", bare, MCJAX_LOG_DIR="x", MCJAX_WRAP="env", MCJAX_STDIN="1")
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
    assert ended.report.startswith("stopped by SIGTERM\n")
    assert ended.report.endswith("\nthe check was not finished")
