"""JAX under launchers that are one of several, and inside what other schedulers set."""

import os
from pathlib import Path

from jobs import PROGRAMS, Jobs


def test_one_launcher_per_host_forms_one_job(jobs: Jobs, tmp_path: Path) -> None:
    with_port = f"localhost:{20_000 + os.getpid() % 10_000}"
    options = ["--num-hosts", "2", "--procs-per-host", "2", "--coordinator", with_port, "-d", "1"]
    first = jobs.start(*options, "--host-rank", "0", PROGRAMS / "toy.py")
    second = jobs.start(*options, PROGRAMS / "toy.py", env={"JOB_COMPLETION_INDEX": "1"})
    both = [first.finish(), second.finish()]
    assert [ended.status for ended in both] == [0, 0], both[0].stderr + both[1].stderr
    for rank in range(4):
        assert f"[{rank}] process {rank} of 4" in both[rank // 2].stdout


def test_divergence_is_reported_by_the_launcher_of_its_ranks_only(jobs: Jobs) -> None:
    """The one that has these ranks tells it; the other one blames none of its own."""
    with_port = f"localhost:{20_000 + os.getpid() % 10_000}"
    options = ["--num-hosts", "2", "--procs-per-host", "2", "--coordinator", with_port, "-d", "1"]
    options += ["--grace", "1", "--verify-spmd", str(PROGRAMS / "diverging.py"), "code"]
    first = jobs.start("--host-rank", "0", *options)
    second = jobs.start("--host-rank", "1", *options)
    innocent, concerned = first.finish(), second.finish()
    assert concerned.status == 1, innocent.stderr + concerned.stderr
    assert "--verify-spmd: the ranks run different programs\n" in concerned.report
    assert "different programs" not in innocent.stderr
    for ended, ranks in ((innocent, "0-1"), (concerned, "2-3")):
        note = f"--verify-spmd compares only ranks {ranks}, which this launcher starts\n"
        assert note in ended.stderr


# --- other detectors ---


def test_explicit_coordinates_keep_other_detectors_out(jobs: Jobs) -> None:
    """What JAX would take for a Slurm step, an MPI job and a pod."""
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "elsewhere",
        "SLURM_NTASKS": "9",
        "SLURM_PROCID": "8",
        "SLURM_LOCALID": "3",
        "OMPI_MCA_orte_hnp_uri": "1.0;tcp://192.0.2.1:1",
        "OMPI_COMM_WORLD_SIZE": "9",
        "OMPI_COMM_WORLD_RANK": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "3",
        "KUBERNETES_SERVICE_HOST": "192.0.2.2",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    program = [PROGRAMS / "coordinates.py", "nothing"]
    ended = jobs.run("--hosts", "localhost:2", "-d", 1, *program, env=env)
    assert ended.status == 0, ended.stderr
    assert "[1] process 1 of 2" in ended.stdout
