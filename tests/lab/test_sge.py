"""In a real Grid Engine: a queue of three hosts with two slots each."""

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import documented
import psutil
import pytest
from jobs import LAUNCHER, PROGRAMS, eventually
from remote import SYSTEM_PATH, Lab, needs_lab

LIBRARY = "/usr/lib/gridengine"

pytestmark = [
    needs_lab,
    pytest.mark.timeout(300),  # many small programs bring it up, each slow on a busy machine
    pytest.mark.skipif(
        not shutil.which("sge_execd", path=f"{SYSTEM_PATH}:{LIBRARY}"),
        reason="needs Grid Engine: apt install gridengine-master gridengine-exec gridengine-client",
    ),
]


class Cluster(Lab):
    """The lab with Grid Engine on it."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        command = ["env", f"LAB={self.folder}", "CPUS=2", str(Path(__file__).parent / "sge.sh")]
        done = subprocess.run(
            [*self._enter, *command, "up"], capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr
        settings = (Path(self.folder) / "sge" / "env").read_text().split()[1:]
        self._env = [*self._enter, "env", *settings]

    def sge(self, *command: str) -> str:
        done = subprocess.run([*self._env, *command], capture_output=True, text=True, timeout=150)
        return done.stdout + done.stderr

    def submit(self, folder: Path, text: str, *options: str) -> str:
        """Submit a script, whose job prints to `out` in its folder; the job's number."""
        (folder / "job.sh").write_text(text)
        where = ["-terse", "-o", str(folder / "out"), "-j", "y", "-wd", str(folder), *options]
        where += ["-v", f"MCJAX_VIA={self.via}"]
        return self.sge("qsub", *where, str(folder / "job.sh")).strip()

    def wait(self) -> None:
        """All jobs are over, and nothing is left of them."""
        eventually(lambda: not self.sge("qstat").strip(), 90)
        self.check_clean()

    def processes(self, host: str) -> list[str]:
        shown = super().processes(host)
        return [line for line in shown if "sge_execd" not in line and "nsenter" not in line]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.getbasetemp())
    yield made
    for process in psutil.Process(made._process.pid).children(recursive=True):
        if process.name() in ("sge_qmaster", "sge_execd"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    made.end()


def script(*arguments: object) -> str:
    """A batch script of three slots on two hosts that runs the launcher."""
    directives = ["-S /bin/bash", "-pe mpi 3", "-notify"]
    command = shlex.join([*LAUNCHER, *map(str, arguments)])
    return "\n".join(["#!/bin/bash", *(f"#$ {line}" for line in directives), f"exec {command}", ""])


@pytest.mark.jax
def test_documented_commands_work(cluster: Cluster, tmp_path: Path) -> None:
    """The launcher in a script, and the command that submits it."""
    sessions = documented.at(documented.SGE)
    commands = {session.steps[0].command for session in sessions}
    assert commands == {"qsub job.sh"}
    path = documented.prepare(sessions[0], tmp_path)["PATH"]
    (tmp_path / "bin" / "qsub").unlink()  # here is a real one
    options = ("-pe mpi 3", f"-wd {tmp_path}", f"-o {tmp_path}/out", "-j y", f"-v PATH={path}")
    own_lines = (f"export MCJAX_VIA='{cluster.via}'", "mcjax-launch train.py")
    lines = ["#!/bin/bash", *(f"#$ {option}" for option in options), *own_lines]
    (tmp_path / "job.sh").write_text("\n".join([*lines, ""]))
    submitted = cluster.sge("env", "-C", str(tmp_path), "bash", "-ec", "qsub job.sh")
    assert "has been submitted" in submitted
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert shown.count("step 2 loss 3.0") == 3, shown


@pytest.mark.jax
def test_ranks_of_two_hosts_meet(cluster: Cluster, tmp_path: Path) -> None:
    """On two hosts; all meet in JAX."""
    cluster.submit(tmp_path, script("-d", 1, PROGRAMS / "meeting.py"))
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert shown.count("of 3 knows 0 1 4") == 3, shown


def test_input_reaches_rank_0(cluster: Cluster, tmp_path: Path) -> None:
    """Of more than Grid Engine's own connection takes."""
    (tmp_path / "in").write_bytes(bytes(3 << 20))
    cluster.submit(tmp_path, f"{script('--stdin', 'wc', '-c').rstrip()} < in\n")
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert shown.count("3145728") == 1, shown


def test_failed_rank_is_the_root_cause(cluster: Cluster, tmp_path: Path) -> None:
    program = ["sh", "-c", "[ $JAX_PROCESS_ID = 2 ] && exit 9; exec sleep 1000"]
    cluster.submit(tmp_path, script("--grace", 1, *program))
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert "rank 2 on jh" in shown and "failed: exit status 9" in shown, shown


@pytest.mark.jax
def test_qdel_reaches_the_preemption_service(cluster: Cluster, tmp_path: Path) -> None:
    number = cluster.submit(tmp_path, script(PROGRAMS / "preempted.py"))
    out = tmp_path / "out"
    eventually(lambda: out.exists() and out.read_text().count("training") == 3, 90)
    cluster.sge("qdel", number)
    cluster.wait()
    assert out.read_text().count("saved") == 3, out.read_text()


def test_forced_end_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Without -notify, Grid Engine kills at once."""
    stubborn = "trap '' TERM USR2; echo ready; while :; do sleep 1000; done"
    text = script("bash", "-c", stubborn).replace("#$ -notify\n", "")
    number = cluster.submit(tmp_path, text)
    out = tmp_path / "out"
    eventually(lambda: out.exists() and out.read_text().count("ready") == 3, 90)
    cluster.sge("qdel", number)
    cluster.wait()
