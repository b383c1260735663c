"""In a real Slurm: three nodes, each a host of its own."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import documented
import pages
import psutil
import pytest
from jobs import LAUNCHER, PROGRAMS, Jobs, Running, eventually
from pages import Session
from remote import SYSTEM_PATH, Lab, needs_lab

pytestmark = [
    needs_lab,
    pytest.mark.skipif(
        not all(shutil.which(name, path=SYSTEM_PATH) for name in ("slurmctld", "munged")),
        reason="needs Slurm: apt install slurm-wlm slurm-wlm-basic-plugins munge",
    ),
]


class Cluster(Lab):
    """The lab with Slurm on it."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self._slurm = str(Path(__file__).parent / "slurm.sh")
        self.inside("env", f"LAB={self.folder}", self._slurm, "up")
        self.env = [*self._enter, "env", f"SLURM_CONF={self.folder}/slurm/slurm.conf"]

    def slurm(self, *command: str) -> str:
        done = subprocess.run([*self.env, *command], capture_output=True, text=True, timeout=150)
        return done.stdout + done.stderr

    def end(self) -> None:
        self.inside("env", f"LAB={self.folder}", self._slurm, "down")
        super().end()

    def processes(self, host: str) -> list[str]:
        shown = super().processes(host)
        return [line for line in shown if "slurmd -D" not in line and "nsenter" not in line]

    def salloc(self, jobs: Jobs, size: str, *args: object) -> Running:
        """Start the launcher in the shell of an allocation."""
        launcher = [*self.env, "salloc", "--quiet", *size.split(), *LAUNCHER]
        return jobs.start(*args, launcher=launcher)

    def idle(self) -> None:
        eventually(lambda: not self.slurm("squeue", "-h").strip(), 60)
        self.check_clean()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.getbasetemp())
    yield made
    made.end()


@pytest.mark.jax
def test_job_runs_in_an_allocation(jobs: Jobs, cluster: Cluster) -> None:
    ended = cluster.salloc(jobs, "-N2 --ntasks-per-node=2", "-d", 1, PROGRAMS / "toy.py").finish()
    assert ended.status == 0, ended.stderr
    for rank in range(4):
        assert f"[{rank} jh{rank // 2 + 1}] process {rank} of 4" in ended.stdout
    cluster.idle()


# A client without the plugin for containers, and with fewer GPUs than the page's.
SRUN = """#!/bin/sh
for word; do
    shift
    case $word in --container-image=*|--gpus=*) ;; *) set -- "$@" "$word" ;; esac
done
exec /usr/bin/srun "$@"
"""


@pytest.mark.jax
@pytest.mark.parametrize("session", documented.at(documented.SLURM), ids=str)
def test_documented_command_works_in_an_allocation(
    jobs: Jobs, cluster: Cluster, tmp_path: Path, session: Session
) -> None:
    [step] = session.steps
    env = documented.prepare(session, tmp_path)
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "srun").chmod(0o755)
    typed = ["env", "-C", str(tmp_path), f"PATH={env['PATH']}", "bash", "-ec", step.command]
    ended = jobs.run(*typed, launcher=[*cluster.env, "salloc", "--quiet", "-N2"])
    assert ended.status == 0, ended.stderr
    for rank in range(2):
        assert f"[{rank} jh{rank + 1}] step 2 loss 2.5" in ended.stdout
    cluster.idle()


GPUS = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES of ${JAX_LOCAL_DEVICE_IDS-all}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Slurm's GPUs are devices")
@pytest.mark.parametrize("size", ["--exclusive", "--gpus-per-task=1"])
def test_gpus_of_an_allocation_are_divided_among_ranks(
    jobs: Jobs, cluster: Cluster, size: str
) -> None:
    """A step inherits what was asked for a task, and nothing where the job is exclusive."""
    ended = cluster.salloc(jobs, f"-N2 --ntasks-per-node=2 {size}", *GPUS).finish()
    assert ended.status == 0, ended.stderr
    nodes = ("0 jh1", "1 jh1", "2 jh2", "3 jh2")
    shown = [f"[{node}] 0,1 of {rank % 2}" for rank, node in enumerate(nodes)]
    assert sorted(ended.stdout.splitlines()) == shown
    cluster.idle()


def test_own_srun_command_of_the_user_works(jobs: Jobs, cluster: Cluster) -> None:
    via = "srun --nodes=1 --ntasks=1 --nodelist={host} --overlap"
    ended = cluster.salloc(jobs, "-N2", "--via", via, "hostname").finish()
    assert sorted(ended.stdout.splitlines()) == ["[0 jh1] jh1", "[1 jh2] jh2"], ended.stderr
    cluster.idle()


def submit(cluster: Cluster, folder: Path, *options: object) -> str:
    """Submit an emitted script; the job's id. It prints to job.out in the folder."""
    emit = [*LAUNCHER, "--emit", "slurm", *map(str, options)]
    text = subprocess.run(emit, capture_output=True, text=True, check=True, cwd=folder).stdout
    (folder / "job.sh").write_text(text)
    where = ["-D", str(folder), "-o", str(folder / "job.out")]
    return cluster.slurm("sbatch", "--parsable", *where, str(folder / "job.sh")).strip()


@pytest.mark.jax
def test_emitted_script_runs(jobs: Jobs, cluster: Cluster, tmp_path: Path) -> None:
    submit(cluster, tmp_path, "--num-hosts", 3, "-d", 1, PROGRAMS / "toy.py")
    cluster.idle()
    shown = (tmp_path / "job.out").read_text()
    assert "[2 jh3] process 2 of 3" in shown, shown


def test_sites_option_wins_and_no_argument_is_one(
    jobs: Jobs, cluster: Cluster, tmp_path: Path
) -> None:
    options = ["--num-hosts", 3, "--engine-option", "--nodes=2"]
    submit(cluster, tmp_path, *options, "echo", "a\n#SBATCH --nodes=1\n#SBATCH --hold\n")
    cluster.idle()
    shown = (tmp_path / "job.out").read_text()
    assert sorted(line for line in shown.splitlines() if line.endswith(" a")) == [
        "[0 jh1] a",
        "[1 jh2] a",
    ]


@pytest.mark.jax
def test_scancel_reaches_the_preemption_service(
    jobs: Jobs, cluster: Cluster, tmp_path: Path
) -> None:
    number = submit(cluster, tmp_path, "--num-hosts", 2, PROGRAMS / "preempted.py")
    out = tmp_path / "job.out"
    eventually(lambda: out.exists() and out.read_text().count("training") == 2)
    cluster.slurm("scancel", number)
    cluster.idle()
    assert out.read_text().count("saved") == 2


@pytest.mark.jax
def test_the_cookbooks_script_saves_and_is_queued_again(
    jobs: Jobs, cluster: Cluster, tmp_path: Path
) -> None:
    """The signal is the one that Slurm sends before a job's time is up."""
    for name, text in pages.files(pages.ROOT / "docs" / "cookbook.md").items():
        (tmp_path / name).write_text(text.replace("step == 8", "step == 0"))  # it fails of nothing
    where = ["-D", str(tmp_path), "-o", str(tmp_path / "job.out"), "--ntasks-per-node=1"]
    bin_ = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = [*cluster.env, f"PATH={bin_}", "MCJAX_CPU_DEVICES=1", "sbatch"]
    command = [*environment, "--parsable", *where, "job.sh"]
    number = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env=jobs.environment()
    ).stdout.strip()
    eventually((tmp_path / "state.npz").exists)
    cluster.slurm("scancel", "--batch", "--signal=USR1", number)
    job = lambda: cluster.slurm("scontrol", "show", "job", number)  # noqa: E731
    eventually(lambda: "JobState=PENDING" in job())
    assert "Restarts=1" in job()
    cluster.slurm("scancel", number)
    cluster.idle()
    [begin] = re.findall(
        r"^\[0 jh1\] begins at step (\d+)", (tmp_path / "job.out").read_text(), re.M
    )
    assert begin == "0"


def test_a_users_signal_reaches_the_ranks(jobs: Jobs, cluster: Cluster, tmp_path: Path) -> None:
    script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    number = submit(cluster, tmp_path, "--num-hosts", 2, "bash", "-c", script)
    out = tmp_path / "job.out"
    eventually(lambda: out.exists() and out.read_text().count("ready") == 2)
    cluster.slurm("scancel", "--signal=USR1", number)
    cluster.idle()
    assert out.read_text().count("got it") == 2, out.read_text()


OBEDIENT = "trap 'exit 0' TERM; echo ready; sleep 1000 & wait"


def test_a_signal_to_the_steps_ends_the_job(jobs: Jobs, cluster: Cluster) -> None:
    """It reaches guardians, agents and ranks in any order, and not the launcher."""
    running = cluster.salloc(jobs, "-N2", "--max-restarts", 2, "bash", "-c", OBEDIENT)
    running.read_until("ready", 2)
    number = cluster.slurm("squeue", "-h", "-o", "%i").strip()
    cluster.slurm("scancel", "--signal=TERM", number)
    ended = running.finish()
    assert ended.status == 255, ended.stderr
    assert "its agent was stopped by SIGTERM" in ended.report.splitlines()[-3]
    assert "restarting" not in ended.report
    cluster.idle()


def test_signal_to_starting_steps_ends_the_job(jobs: Jobs, cluster: Cluster) -> None:
    for pause_s in (0.1, 0.3):
        running = cluster.salloc(jobs, "-N2", "--max-restarts", 2, "bash", "-c", OBEDIENT)
        eventually(lambda: ".0" in cluster.slurm("squeue", "-h", "--steps", "-o", "%i"))
        number = cluster.slurm("squeue", "-h", "-o", "%i").strip()
        time.sleep(pause_s)
        cluster.slurm("scancel", "--signal=TERM", number)
        ended = running.finish()
        assert ended.status == 255, ended.stderr
        assert "its agent was stopped by SIGTERM" in ended.report
        cluster.idle()


def test_killed_launcher_leaves_nothing(jobs: Jobs, cluster: Cluster) -> None:
    script = "setsid sleep 1000 & trap '' TERM; echo ready; while :; do sleep 1000; done"
    running = cluster.salloc(jobs, "-N3", "--grace", "1", "bash", "-c", script)
    running.read_until("ready", 3)
    family = psutil.Process(running.process.pid).children(recursive=True)
    launchers = [
        p for p in family if "mcjax_launch" in p.cmdline() and p.name().startswith("python")
    ]
    launchers[0].kill()
    running.finish()
    cluster.idle()


def test_dead_node_ends_the_job(jobs: Jobs, cluster: Cluster) -> None:
    running = cluster.salloc(jobs, "-N3", "bash", "-c", "echo ready; exec sleep 1000")
    running.read_until("ready", 3)
    began = time.monotonic()
    cluster.do("poweroff", "jh3")
    try:
        ended = running.finish()
        assert time.monotonic() - began < 30
        assert "host jh3: " in ended.report
    finally:
        cluster.do("boot", "jh3")
        cluster.inside("env", f"LAB={cluster.folder}", cluster._slurm, "node-up", "jh3")
        eventually(lambda: "3" in cluster.slurm("sinfo", "-h", "-t", "idle", "-o", "%D"), 60)
    cluster.check_clean()
    for folder in Path(os.environ["TMPDIR"]).glob("mcjax-*"):  # nobody was left to remove it
        shutil.rmtree(folder)


# --- JAX's own detection, left alone ---


@pytest.mark.jax
def test_bare_initialize_works_under_srun_without_the_launcher(
    jobs: Jobs, cluster: Cluster
) -> None:
    """The guide's way, as the program of a lone rank with --no-hook."""
    program = [LAUNCHER[0], PROGRAMS / "coordinates.py", "nothing"]
    srun = ["srun", "-N2", "--ntasks-per-node=1", *program]
    options = ["--hosts", "localhost", "--no-hook", "-d", "1"]
    ended = cluster.salloc(jobs, "-N2", *options, *srun).finish()
    assert "process 1 of 2 with 2 devices" in ended.stdout, ended.stderr
    cluster.idle()


@pytest.mark.jax
@pytest.mark.skipif(
    shutil.which("mpirun") is None or not documented.is_open_mpi_known_to_jax(),
    reason="needs Open MPI: apt install openmpi-bin; from Open MPI 5 on also mpi4py",
)
def test_open_mpi_coordinates_are_taken_only_without_the_hook(jobs: Jobs) -> None:
    """With us its coordinates are not taken; with --no-hook they are."""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
    program = [LAUNCHER[0], str(PROGRAMS / "coordinates.py"), "nothing"]
    environ = jobs.environment(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="1")
    environ["MPI4PY_MPIABI"] = "openmpi"  # MPICH may be here too
    ours = [*mpirun, "-n", "1", *LAUNCHER, "-n", "2", *program]
    theirs = [*mpirun, "-n", "2", *LAUNCHER, "--no-hook", "--no-prefix", *program]
    for command in (ours, theirs):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150)
        assert "process 1 of 2 with 2 devices" in done.stdout, done.stdout + done.stderr
