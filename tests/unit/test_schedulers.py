"""Allocations as schedulers describe them."""

import socket
from pathlib import Path

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import slurm
from mcjax_launch.job.hosts import Host
from mcjax_launch.launcher.timers import compute_pause_s
from mcjax_launch.machine import known_schedulers
from mcjax_launch.options.options import Options
from mcjax_launch.request import allocated_hosts as allocated
from mcjax_launch.request.hosts import find_hosts
from mcjax_launch.transport.remote_commands import make_client_environ


def test_slurm_allocation_is_found() -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2],m7"}
    assert known_schedulers.find_scheduler(environ) is known_schedulers.CLIENTS["srun"]
    # As in a shell on a node, by ssh.
    assert known_schedulers.find_scheduler({"SLURM_JOB_ID": "1"}) is None
    assert [h.slots for h in slurm.parse_allocation(environ, None)] == [1, 1, 1]
    environ |= {"SLURM_NTASKS": "5", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    found = slurm.parse_allocation(environ, None)
    assert [(h.name, h.slots) for h in found] == [("n1", 2), ("n2", 2), ("m7", 1)]
    assert [h.slots for h in slurm.parse_allocation(environ, 4)] == [4, 4, 4]


def test_gpus_of_each_node_are_parsed() -> None:
    shown = """   JOB_GRES=gpu:6
     Nodes=jh[1-2] CPU_IDs=6-7 Mem=0 GRES=gpu:2(IDX:0-1)
     Nodes=jh3 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0),gpu:t4:1(IDX:3),shard:7(IDX:0)
     Nodes=jh4 CPU_IDs=0 Mem=0 GRES=
   MinCPUsNode=1
"""
    assert slurm.parse_gpus(shown) == {"jh1": 2, "jh2": 2, "jh3": 2}


def test_step_with_some_nodes_uses_only_these() -> None:
    environ = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NTASKS": "1",
        "SLURM_TASKS_PER_NODE": "1",
    }
    assert [h.slots for h in slurm.parse_allocation(environ, None)] == [1, 1]


def test_attempts_are_at_most_half_a_minute_apart() -> None:
    assert [compute_pause_s(restart) for restart in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert compute_pause_s(10**6) == 30


def test_srun_gets_none_of_its_options_from_outside() -> None:
    outside = {"SLURM_GPUS_PER_TASK": "1", "SLURM_LABELIO": "1", "SRUN_CPUS_PER_TASK": "2"}
    kept = {"SLURM_JOB_ID": "1", "SLURM_CONF": "x", "HOME": "h"}
    assert make_client_environ("srun", {**outside, **kept}) == kept
    assert make_client_environ("ssh", {**outside, **kept}) == {**outside, **kept}


def test_step_asks_for_the_gpus_of_its_node() -> None:
    for gpus, words in ((2, ["--gpus=2"]), (0, []), (None, [])):
        argv = slurm.make_srun_argv(Host(name="n1", slots=1, gpus=gpus), "x")
        assert [word for word in argv if word.startswith("--gpus")] == words
        assert argv[:4] == ["srun", "--nodes=1", "--ntasks=1", "--nodelist=n1"]
        assert argv[-3:] == ["sh", "-c", "x"]


def test_more_tasks_than_possible_ranks_are_refused() -> None:
    assert slurm.parse_task_counts("2(x2),1") == [2, 2, 1]
    with pytest.raises(LaunchError, match=r"SLURM_TASKS_PER_NODE=1\(x65536\),1: "):
        slurm.parse_task_counts("1(x65536),1")


def test_several_launchers_under_srun_are_refused() -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "2"}
    with pytest.raises(LaunchError, match="srun has started 2 launchers"):
        slurm.parse_allocation(environ, None)


def test_several_launchers_under_mpirun_are_refused() -> None:
    options = Options(program=("true",), num_processes=2)
    several = {"OMPI_COMM_WORLD_SIZE": "2"}
    with pytest.raises(LaunchError, match="mpirun has started 2 launchers, one per task: "):
        find_hosts(options, several)
    slurms = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1"}
    with pytest.raises(LaunchError, match="mpirun has started 2 launchers, one per task: "):
        slurm.parse_allocation(several | slurms, None)
    assert len(find_hosts(options, {"OMPI_COMM_WORLD_SIZE": "1"})) == 1
    assert len(find_hosts(options.copy_with(no_hook=True), several)) == 1
    assert len(find_hosts(options.copy_with(hosts=("localhost:2",)), several)) == 1


def test_unused_components_of_a_heterogeneous_job_are_named() -> None:
    environ, scheduler = {"SLURM_JOB_NODELIST": "n1"}, known_schedulers.CLIENTS["srun"]
    assert allocated.explain_few_slots(scheduler, environ) == ""
    said = allocated.explain_few_slots(scheduler, environ | {"SLURM_HET_SIZE": "3"})
    assert "has 3 components, and only the first is used: n1; " in said


def test_restarts_of_a_jobset_are_counted() -> None:
    assert (
        known_schedulers.count_restarts({"MCJAX_ENGINE_RESTART": "3", "SLURM_RESTART_COUNT": ""})
        == 3
    )


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"PBS_JOBID": "1[3].server", "PBS_NODEFILE": ""}, "n1\nn2\nn1\n\nn2\r\nn2"),
        ({"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": ""}, "n1 2\nn2 3\n"),
        ({"JOB_ID": "1", "PE_HOSTFILE": ""}, "n1 2 all.q@a UNDEFINED\nn2 3 b.q@b 0,0:0,1\n\n"),
    ],
    ids=["PBS", "LSF", "Grid Engine"],
)
def test_hosts_of_a_file_are_read(tmp_path: Path, environ: dict[str, str], text: str) -> None:
    (tmp_path / "hosts").write_text(text)
    environ = {name: value or str(tmp_path / "hosts") for name, value in environ.items()}
    scheduler = known_schedulers.find_scheduler(environ)
    assert scheduler is not None

    def read(slots: int | None) -> list[tuple[str, int]]:
        hosts = allocated.find_hosts(scheduler, environ, slots)
        return [(host.name, host.slots) for host in hosts]

    assert read(None) == [("n1", 2), ("n2", 3)]
    assert read(8) == [("n1", 8), ("n2", 8)]
    (tmp_path / "hosts").write_text("\n")
    with pytest.raises(LaunchError, match="no hosts listed"):
        read(None)
    with pytest.raises(LaunchError, match=r"mpirun has started 4 launchers.*: start a single"):
        started = {**environ, "OMPI_COMM_WORLD_SIZE": "4"}
        allocated.find_hosts(scheduler, started, None)


def test_restarts_by_the_scheduler_are_counted() -> None:
    lsf = {"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": "x"}
    again = [{"JOB_ID": "1", "PE_HOSTFILE": "x", "RESTARTED": "1"}, {**lsf, "LSB_RESTART": "Y"}]
    assert [known_schedulers.count_restarts(environ) for environ in again] == [1, 1]
    others = [{"RESTARTED": "1"}, {**lsf, "LSB_RESTART": "N"}]  # somebody's own
    assert [known_schedulers.count_restarts(environ) for environ in others] == [0, 0]


def test_gpus_granted_by_grid_engine_are_read() -> None:
    devices = {"0 1": "0,1", "gpu2 gpu3": "2,3", "cuda0,cuda1": "0,1", "a b": None, "": None}
    for granted, chosen in devices.items():
        found = known_schedulers.get_granted_gpus({"SGE_HGR_gpu": granted})
        assert found.get("CUDA_VISIBLE_DEVICES") == chosen
    own = {"SGE_HGR_gpu": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert known_schedulers.get_granted_gpus(own) == {}


@pytest.mark.parametrize("own", ["Me", "me.site", "ME.other"])
def test_this_machine_is_known_by_short_and_full_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: own)
    (tmp_path / "hosts").write_text("me.site\nME\nme2.site\nyou\n")
    environ = {"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "hosts")}
    scheduler = known_schedulers.find_scheduler(environ)
    assert scheduler is not None
    hosts = allocated.find_hosts(scheduler, environ, None)
    assert [host.here for host in hosts] == [True, True, False, False]
