"""In the allocations of PBS, LSF and Grid Engine, whose hosts are reached by ssh."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from jobs import LAUNCHER, Ended, Jobs

from mcjax_launch.machine import known_schedulers

TESTS = Path(__file__).parents[1]
SHOW = "echo {process_id} of {num_processes} ${CUDA_VISIBLE_DEVICES--}"
PBS = {"PBS_JOBID": "7.server", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_TASKNUM": "1"}


class Cluster:
    """A folder with a client and files."""

    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self._jobs = jobs
        self._folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").symlink_to(TESTS / "fake_ssh")
        self.environ = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def file(self, name: str, text: str) -> str:
        (self._folder / name).write_text(text)
        return str(self._folder / name)

    def run(self, environ: dict[str, str], *args: object, cwd: Path | None = None) -> Ended:
        return self._jobs.run(*args, env={**self.environ, **environ}, cwd=cwd)


@pytest.fixture
def cluster(jobs: Jobs, tmp_path: Path) -> Cluster:
    return Cluster(jobs, tmp_path)


def shown(ended: Ended) -> list[str]:
    assert ended.status == 0, ended.stderr
    return sorted(ended.stdout.splitlines())


def test_pbs_allocation_is_used(cluster: Cluster) -> None:
    nodes = cluster.file("nodes", "n1\nn1\nn2\nn2\n")
    ended = cluster.run({**PBS, "PBS_NODEFILE": nodes}, "sh", "-c", f"{SHOW} $PBS_TASKNUM")
    assert shown(ended) == [f"[{rank} n{rank // 2 + 1}] {rank} of 4 -" for rank in range(4)]


def test_ranks_start_where_the_job_was_submitted(cluster: Cluster, tmp_path: Path) -> None:
    """PBS begins in the home; a script that has gone elsewhere stays there."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    nodes = cluster.file("nodes", "n1\n")
    environ = {**PBS, "PBS_NODEFILE": nodes, "HOME": str(home), "PBS_O_WORKDIR": str(work)}
    assert shown(cluster.run(environ, "pwd", cwd=home)) == [f"[0] {work}"]
    assert shown(cluster.run(environ, "pwd", cwd=tmp_path)) == [f"[0] {tmp_path}"]


def test_lsf_allocation_is_used(cluster: Cluster) -> None:
    hosts = cluster.file("hosts", "n1\nn2\nn2\n")
    environ = {"LSB_JOBID": "12", "LSB_DJOB_HOSTFILE": hosts}
    ended = cluster.run(environ, "-v", "sh", "-c", SHOW)
    assert shown(ended) == ["[0 n1] 0 of 3 -", "[1 n2] 1 of 3 -", "[2 n2] 2 of 3 -"]
    assert "2 hosts of LSF's allocation, reached by ssh" in ended.report


def test_grid_engine_allocation_is_used(cluster: Cluster) -> None:
    hosts = cluster.file("hosts", "n1 2 all.q@n1 UNDEFINED\nn2 1 all.q@n2 <NULL>\n")
    environ = {"JOB_ID": "5", "PE_HOSTFILE": hosts, "SGE_TASK_ID": "undefined", "NSLOTS": "3"}
    ended = cluster.run({**environ, "RESTARTED": "1"}, "sh", "-c", f"{SHOW} $MCJAX_RESTART")
    assert shown(ended) == ["[0 n1] 0 of 3 - 1", "[1 n1] 1 of 3 - 1", "[2 n2] 2 of 3 - 1"]


def test_warning_of_grid_engine_preempts_the_job(cluster: Cluster, jobs: Jobs) -> None:
    hosts = cluster.file("hosts", "n1 1 q UNDEFINED\nn2 1 q UNDEFINED\n")
    environ = {**cluster.environ, "JOB_ID": "5", "PE_HOSTFILE": hosts}
    script = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    running = jobs.start("bash", "-c", script, env=environ)
    running.read_until("ready", 2)
    running.signal(signal.SIGUSR2)
    ended = running.finish()
    assert ended.status == 143, ended.stderr
    assert ended.stdout.count("got TERM") == 2


def test_login_node_is_reported(cluster: Cluster) -> None:
    nodes = {**PBS, "PBS_NODEFILE": "/var/spool/pbs/aux/7.server"}
    ended = cluster.run(nodes, "true")
    assert ended.status == 2
    assert "run mcjax-launch in the job's script, which has the file" in ended.report
    ended = cluster.run({}, "--via", "srun", "true")
    assert "--via srun: no Slurm allocation here: run mcjax-launch in a job" in ended.report


def test_innermost_allocation_is_used(tmp_path: Path) -> None:
    """By the daemon above the launcher, or by a file that only the job's host has."""
    both = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a"}
    both |= {"PBS_JOBID": "1.server", "PBS_NODEFILE": str(tmp_path / "nodes")}

    def inner(environ: dict[str, str]) -> tuple[str, str]:
        scheduler, why = known_schedulers.choose_scheduler(environ, str(tmp_path))
        assert scheduler is not None
        return scheduler.name, why

    assert inner(both)[0] == "slurm"  # the file is another host's
    (tmp_path / "nodes").touch()
    assert inner(both)[0] == "pbs"
    assert inner({**both, "PBS_JOBID": "7"})[0] == "slurm"  # its own imitation
    process = tmp_path / "proc" / str(os.getppid())
    process.mkdir(parents=True)
    (process / "stat").write_text(f"{os.getppid()} (slurmstepd) S 1 0 0")
    name, why = inner(both)
    assert (name, why) == (
        "slurm",
        "variables of Slurm and PBS: slurmstepd is the nearest above this process",
    )


def test_hosts_chosen_by_the_user_take_precedence(cluster: Cluster) -> None:
    environ = {"JOB_ID": "5", "PE_HOSTFILE": "/no/such/file"}
    ended = cluster.run(environ, "--hosts", "localhost:2", "sh", "-c", "echo {process_id}")
    assert shown(ended) == ["[0] 0", "[1] 1"]


# Variables that a shell may have without being in a job, what they stand for, and what to unset.
LEFT_OVER = {
    "SLURM_JOB_ID=5 and SLURM_JOB_NODELIST=n1": ("Slurm", "SLURM_JOB_ID"),
    "JOB_ID=5 and PE_HOSTFILE=/no/such/file": ("Grid Engine", "JOB_ID"),
}


@pytest.mark.parametrize("found", LEFT_OVER)
def test_leftover_job_variables_are_explained(cluster: Cluster, found: str) -> None:
    """The error says what was found, what it stands for, and two ways to run here, which work."""
    job, first = LEFT_OVER[found]
    environ = dict(pair.split("=") for pair in found.split(" and "))
    ended = cluster.run(environ, "-n", 2, "sh", "-c", "echo {process_id}")
    assert ended.status == 2, ended.stderr
    (line,) = ended.report.splitlines()
    set_ = "are set" if " and " in found else "is set"
    advice = f"unset {first} or add --hosts localhost:2"
    assert line.endswith(f"; {found} {set_}, as in a job of {job}; outside one, {advice}")
    ended = cluster.run(environ, "--hosts", "localhost:2", "sh", "-c", "echo {process_id}")
    assert shown(ended) == ["[0] 0", "[1] 1"]


def test_missing_client_with_leftover_variables_is_reported(cluster: Cluster) -> None:
    environ = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n1", "PATH": "/no/where"}
    ended = cluster.run(environ, "/bin/true")
    assert ended.status == 255
    assert "srun: No such file or directory" in ended.report
    assert "unset SLURM_JOB_ID or add --hosts localhost" in ended.report
    assert "Python" not in ended.report


def test_variables_inside_a_job_are_trusted(cluster: Cluster, tmp_path: Path) -> None:
    """The scheduler's daemon is above the launcher."""
    daemon = tmp_path / "slurmstepd"
    daemon.write_bytes(Path("/bin/sh").read_bytes())
    daemon.chmod(0o755)
    environ = {**cluster.environ, "SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n1"}
    words = [str(daemon), "-c", '"$@"; exit $?', "sh", *LAUNCHER, "-n", "2", "true"]
    done = subprocess.run(words, env={**os.environ, **environ}, capture_output=True, text=True)
    assert done.returncode == 2
    more = "request more slots, or set --procs-per-host K"
    assert done.stderr == f"mcjax-launch: -n 2: Slurm's allocation has 1 slot; {more}\n"
