"""What PBS, LSF, Grid Engine and Flux say of an allocation."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.machine import known_schedulers
from mcjax_launch.schedulers import allocation, flux, lsf, pbs, sge

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a"}


def counts(hosts: tuple[Host, ...]) -> list[tuple[str, int]]:
    return [(host.name, host.slots) for host in hosts]


def test_a_node_file_has_a_line_for_each_slot(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n1.site\nn2\nn1.site\n\nn2\r\nn2")
    environ = {"PBS_JOBID": "1[3].server", "PBS_NODEFILE": str(nodes), "PBS_NUM_PPN": "2"}
    assert counts(pbs.DRIVER.find_hosts(environ, None)) == [("n1.site", 2), ("n2", 3)]
    assert counts(pbs.DRIVER.find_hosts(environ, 8)) == [("n1.site", 8), ("n2", 8)]


def test_gpus_of_torque_are_found(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n1\nn-2\n")
    (tmp_path / "gpus").write_text("n1-gpu1\nn1-gpu3\nn-2-gpu0\n")
    environ = {"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "nodes")}
    hosts = pbs.DRIVER.find_hosts({**environ, "PBS_GPUFILE": str(tmp_path / "gpus")}, None)
    assert [(host.gpus, host.devices) for host in hosts] == [(2, "1,3"), (1, "0")]


def test_empty_node_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("\n")
    with pytest.raises(LaunchError, match="PBS_NODEFILE: no hosts listed"):
        pbs.DRIVER.find_hosts({"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "nodes")}, None)


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({"LSB_MCPU_HOSTS": "batch 1 host1 4 host2 4 "}, [("host1", 4), ("host2", 4)]),
        ({"LSB_MCPU_HOSTS": "batch 2 host1 4"}, [("batch", 2), ("host1", 4)]),
        ({"LSB_MCPU_HOSTS": "login1 1"}, [("login1", 1)]),
        ({"LSB_MCPU_HOSTS": "a 1 b 2"}, [("a", 1), ("b", 2)]),
        ({"LSB_MCPU_HOSTS": "a 1 b 2", "CSM_ALLOCATION_ID": "3"}, [("b", 2)]),
        ({"LSB_HOSTS": "a a b", "LSB_DJOB_HOSTFILE": "/no/such"}, [("a", 2), ("b", 1)]),
        ({"LSB_HOSTS": "a a", "LSB_MCPU_HOSTS": "a 2"}, [("a", 2)]),
        ({"LSB_HOSTS": "a", "LSF_PM_TASKID": "1"}, [("a", 1)]),
    ],
)
def test_hosts_of_lsf_are_read(environ: dict[str, str], hosts: list[tuple[str, int]]) -> None:
    scheduler = known_schedulers.find_scheduler({"LSB_JOBID": "1", **environ})
    assert scheduler is known_schedulers.KINDS["lsf"]
    assert counts(lsf.DRIVER.find_hosts({"LSB_JOBID": "1", **environ}, None)) == hosts


def test_a_long_list_of_lsf_is_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("batch5\n" + "".join(f"n{i}\n" * 42 for i in range(900)))
    environ = {"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": str(tmp_path / "hosts")}
    found = lsf.DRIVER.find_hosts({**environ, "LSB_MCPU_HOSTS": "batch5 1 n0 42"}, None)
    assert counts(found) == [(f"n{i}", 42) for i in range(900)]


@pytest.mark.parametrize("text", ["a", "a 1 b", "a x", "a 0", "a 99999999"])
def test_bad_variables_of_lsf_are_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="LSB_MCPU_HOSTS"):
        lsf.DRIVER.find_hosts({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": text}, None)


def test_hosts_of_grid_engine_are_read(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a 4 all.q@a UNDEFINED\nb.site 2 b.q@b 0,0:0,1\na 1 b.q@a <NULL>\n\n")
    environ = {"JOB_ID": "1", "PE_HOSTFILE": str(file), "SGE_TASK_ID": "3"}
    assert counts(sge.DRIVER.find_hosts(environ, None)) == [("a", 5), ("b.site", 2)]
    assert len(sge.DRIVER.find_hosts({**environ, "JOB_NAME": "petask"}, None)) == 2
    with pytest.raises(LaunchError, match="qrsh -inherit has started this launcher as a task"):
        sge.DRIVER.find_hosts({**environ, "JOB_NAME": "petask", "JOB_SCRIPT": "QRSH"}, None)
    file.write_text("a all.q\n")
    with pytest.raises(LaunchError, match=r"PE_HOSTFILE=.*: a all.q: expected a name and its"):
        sge.DRIVER.find_hosts(environ, None)


def test_gpus_granted_by_grid_engine_are_read() -> None:
    devices = {"0 1": "0,1", "gpu2 gpu3": "2,3", "cuda0,cuda1": "0,1", "a b": None, "": None}
    for granted, chosen in devices.items():
        found = known_schedulers.get_granted_gpus({"SGE_HGR_gpu": granted})
        assert found.get("CUDA_VISIBLE_DEVICES") == chosen
    assert (
        known_schedulers.get_granted_gpus({"SGE_HGR_gpu": "1", "CUDA_VISIBLE_DEVICES": "0"}) == {}
    )


def resources(nodelist: list[str], **cores: str) -> str:
    """R of brokers `_0`, `_1`, ... or ranges `_0_3` of them, with their cores."""
    parts = [
        {"rank": rank.strip("_").replace("_", "-"), "children": {"core": ids}}
        for rank, ids in cores.items()
    ]
    return json.dumps({"version": 1, "execution": {"R_lite": parts, "nodelist": nodelist}})


def test_resources_of_flux_are_parsed() -> None:
    text = resources(["a[1-2,7]", "b"], _4="0-7", _0_2="0,2-3")
    nodes = [(node.name, node.rank, node.cores) for node in flux.parse_resources(text)]
    assert nodes == [("a1", 0, 3), ("a2", 1, 3), ("a7", 2, 3), ("b", 4, 8)]
    same = flux.parse_resources(resources(["x,x"], _0_1="0"))
    assert [node.name for node in same] == ["x", "x"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"execution": 1}', "[" * 100_000),
        resources(["a[1-2]"], _0="0"),
        resources(["a"], _9_0="0"),
        resources(["a"], _0="0-99999999999"),
    ],
)
def test_malformed_resources_of_flux_are_ignored(text: str) -> None:
    assert flux.parse_resources(text) == ()


def test_request_of_a_flux_batch_job_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "run_client", lambda *words: '["asked"]')
    assert flux._read_jobspec({"FLUX_ENCLOSING_ID": "f1"}) == ["asked"]
    assert flux._read_jobspec({"FLUX_ENCLOSING_ID": "f1", "FLUX_JOB_ID": "f2"}) is None
    assert flux._read_jobspec({}) is None


def test_slots_of_flux_are_counted() -> None:
    def slots(resource: Any) -> int:
        return flux._compute_slots(flux.Node("a", 0, cores=7), {"resources": [resource]})

    assert slots({"type": "node", "count": 2, "with": [{"type": "slot", "count": 4}]}) == 4
    assert slots({"type": "slot", "count": 6, "with": [{"type": "core", "count": 2}]}) == 3
    assert slots({"type": "slot", "count": 6, "with": [{"type": "core", "count": 8}]}) == 1
    assert slots({"type": "slot", "count": 6}) == slots(None) == 1


def test_innermost_allocation_is_used(tmp_path: Path) -> None:
    """By the daemon above the launcher, by a file that only the job's host has, else Flux."""
    both = {**SLURM, "PBS_JOBID": "1.server", "PBS_NODEFILE": str(tmp_path / "nodes")}

    def inner(environ: dict[str, str]) -> tuple[str, str]:
        scheduler, why = known_schedulers.choose_scheduler(environ, str(tmp_path))
        assert scheduler is not None
        return scheduler.name, why

    assert inner(both)[0] == "slurm"  # the file is another host's
    (tmp_path / "nodes").touch()
    assert inner(both)[0] == "pbs"
    assert inner({**both, "PBS_JOBID": "7"})[0] == "slurm"  # its own imitation
    assert inner({**both, "FLUX_URI": "local:///x"})[0] == "flux"
    assert inner(SLURM) == ("slurm", "")
    process = tmp_path / "proc" / str(os.getppid())
    process.mkdir(parents=True)
    (process / "stat").write_text(f"{os.getppid()} (slurmstepd) S 1 0 0")
    name, why = inner(both)
    assert (name, why) == (
        "slurm",
        "variables of Slurm and PBS: slurmstepd is the nearest above this process",
    )


def test_restarts_by_the_scheduler_are_counted() -> None:
    of_lsf = {"LSB_JOBID": "1", "LSB_HOSTS": "a"}
    again = [{"JOB_ID": "1", "PE_HOSTFILE": "x", "RESTARTED": "1"}, {**of_lsf, "LSB_RESTART": "Y"}]
    assert [known_schedulers.count_restarts(environ) for environ in again] == [1, 1]
    others = [{"RESTARTED": "1"}, {**of_lsf, "LSB_RESTART": "N"}]  # somebody's own
    assert [known_schedulers.count_restarts(environ) for environ in others] == [0, 0]


@pytest.mark.parametrize("own", ["Me", "me.site", "ME.other"])
def test_this_machine_is_known_by_short_and_full_name(
    monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: own)
    names = [("me.site", 1), ("ME", 1), ("me2.site", 1), ("you", 1)]
    hosts = allocation.make_hosts(names, "x", None)
    assert [host.here for host in hosts] == [True, True, False, False]


PBS = {"PBS_JOBID": "7.server"}
LSF = {"LSB_JOBID": "1", "LSB_HOSTS": "a b"}


@pytest.mark.parametrize(
    ("driver", "environ", "words"),
    [
        (pbs, {**PBS, "PBS_TASKNUM": "3"}, "pbsdsh has started this launcher as task 3 of the job"),
        (lsf, {**LSF, "LSB_TASKINDEX": "2"}, "this launcher as task 2"),
        (pbs, {**PBS, "OMPI_COMM_WORLD_SIZE": "4"}, "mpirun has started 4 launchers, one per task"),
        (lsf, {**LSF, "PMI_SIZE": "2"}, "mpiexec has started 2"),
        (flux, {"FLUX_URI": "x", "FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2"}, "flux run has started 2"),
    ],
)  # fmt: skip
def test_launcher_started_in_each_task_is_refused(
    tmp_path: Path, driver: Any, environ: dict[str, str], words: str
) -> None:
    (tmp_path / "nodes").write_text("n1\nn2\n")
    environ = {"PBS_NODEFILE": str(tmp_path / "nodes"), **environ}
    with pytest.raises(LaunchError, match=f"{words}.*: start a single launcher, in the "):
        driver.DRIVER.find_hosts(environ, None)
