"""In a real Grid Engine: a queue of three hosts with two slots each."""

import contextlib
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
        done = subprocess.run([*self._env, *command], capture_output=True, text=True, timeout=90)
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


def emitted(folder: Path, *arguments: object) -> str:
    """The batch script of a command line."""
    emit = [*LAUNCHER, "--emit", "sge", *map(str, arguments)]
    return subprocess.run(emit, capture_output=True, text=True, check=True, cwd=folder).stdout


@pytest.mark.jax
def test_documented_commands_work(cluster: Cluster, tmp_path: Path) -> None:
    """The launcher in a script, the command that submits a script, and the list of environments."""
    sessions = documented.at(documented.SGE)
    commands = {session.steps[0].command for session in sessions}
    assert commands == {"mcjax-launch train.py", "qconf -spl", "qsub job.sh"}
    path = documented.prepare(sessions[0], tmp_path)["PATH"]
    assert cluster.sge("qconf", "-spl") == "mpi\n"
    (tmp_path / "bin" / "qsub").unlink()  # here is a real one
    options = ("-pe mpi 3", f"-wd {tmp_path}", f"-o {tmp_path}/out", "-j y", f"-v PATH={path}")
    own_lines = (f"export MCJAX_VIA='{cluster.via}'", "mcjax-launch train.py")
    (tmp_path / "job.sh").write_text(script(*(f"#$ {option}" for option in options), *own_lines))
    submitted = cluster.sge("env", "-C", str(tmp_path), "bash", "-ec", "qsub job.sh")
    assert "has been submitted" in submitted
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert shown.count("step 2 loss 3.0") == 3, shown


# Their environment fills hosts one after another: the third is on another one.
THREE = ("--num-hosts", 3)


def script(*words: str) -> str:
    return "\n".join(["#!/bin/bash", "#$ -S /bin/bash", *words, ""])


@pytest.mark.jax
def test_emitted_script_runs(cluster: Cluster, tmp_path: Path) -> None:
    """On two hosts; all meet in JAX."""
    cluster.submit(tmp_path, emitted(tmp_path, *THREE, "-d", 1, PROGRAMS / "meeting.py"))
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert shown.count("of 3 knows 0 1 4") == 3, shown


def test_parser_of_grid_engine_accepts_the_script(cluster: Cluster, tmp_path: Path) -> None:
    options = ["--timeout", "2h", "--max-restarts", 1, "--name", "my-job"]
    options += ["--engine-option", "-pe mpi", "--engine-option", "-l mem_free=1M"]
    (tmp_path / "job.sh").write_text(emitted(tmp_path, *THREE, *options, "echo", "it's $HOME"))
    said = cluster.sge("qsub", "-verify", str(tmp_path / "job.sh"))
    fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    found = {name: value.strip() for name, value in fields.items()}
    assert found["job_name"] == "my-job"
    assert found["parallel environment"] == "mpi range: 3"
    assert found["notify"] == "TRUE"
    assert "h_rt=4:02:00" in found["hard resource_list"]
    assert "mem_free=1M" in found["hard resource_list"]


def test_grid_engine_passes_slots_and_streams_both_ways(cluster: Cluster, tmp_path: Path) -> None:
    """Of more than Grid Engine's own connection takes."""
    (tmp_path / "in").write_bytes(bytes(3 << 20))
    run = f"{' '.join(LAUNCHER)} --stdin wc -c < in"
    cluster.submit(tmp_path, script(run), "-pe", "mpi", "3")
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert shown.count("3145728") == 3, shown


def test_failed_rank_is_the_root_cause(cluster: Cluster, tmp_path: Path) -> None:
    program = ["sh", "-c", "[ $JAX_PROCESS_ID = 2 ] && exit 9; exec sleep 1000"]
    cluster.submit(tmp_path, emitted(tmp_path, *THREE, "--grace", 1, *program))
    cluster.wait()
    shown = (tmp_path / "out").read_text()
    assert "rank 2 on jh" in shown and "failed: exit status 9" in shown, shown


@pytest.mark.jax
def test_qdel_reaches_the_preemption_service(cluster: Cluster, tmp_path: Path) -> None:
    number = cluster.submit(tmp_path, emitted(tmp_path, *THREE, PROGRAMS / "preempted.py"))
    out = tmp_path / "out"
    eventually(lambda: out.exists() and out.read_text().count("training") == 3, 90)
    cluster.sge("qdel", number)
    cluster.wait()
    assert out.read_text().count("saved") == 3, out.read_text()


def test_forced_end_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Without -notify, Grid Engine kills at once."""
    stubborn = "trap '' TERM USR2; echo ready; while :; do sleep 1000; done"
    run = f'exec {" ".join(LAUNCHER)} bash -c "{stubborn}"'
    number = cluster.submit(tmp_path, script(run), "-pe", "mpi", "3")
    out = tmp_path / "out"
    eventually(lambda: out.exists() and out.read_text().count("ready") == 3, 90)
    cluster.sge("qdel", number)
    cluster.wait()
