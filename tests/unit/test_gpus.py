"""GPUs: what a host has, in made-up trees of its file system, and how ranks share them."""

import os
from pathlib import Path

import pytest
from records import run_of

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.explain.rules import shared_gpus
from mcjax_launch.features.explain.view import View
from mcjax_launch.job.devices import GpuShares, describe_gpus, share_out
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.machine.gpus import find_hiding_setting, find_visible_gpus
from mcjax_launch.wire.hook_messages import Backend
from mcjax_launch.wire.messages import VisibleGpus

JOB = Job(program=("train.py",), python="python", chdir="/")
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
CUDA, IDS = "CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS"
PROC = "/proc/driver/nvidia/gpus"


def nvidia(root: Path, *minors: int, files: bool = True) -> None:
    """GPUs as the driver's own folder lists them, on one bus after another."""
    for number, minor in enumerate(minors):
        bus = f"0000:{number + 1:02x}:00.0"
        write(root / PROC[1:] / bus / "information", f"Model: \t H100\nDevice Minor: \t {minor}\n")
        write(root / f"sys/bus/pci/devices/{bus}/config", "\xde\x10")
        if files:
            write(root / f"dev/nvidia{minor}", "")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("latin-1"))


@pytest.mark.parametrize(
    ("value", "count"),
    [
        *[("", 0), ("0", 1), ("0,1,2", 3), ("0,-1,2", 1), ("-1", 0), ("all", 0), ("NoDevFiles", 0)],
        *[("0,0", 0), ("1,2,1", 0), (" 1, 2", 2), ("1gpu,2", 2), ("2,4,1", 1), ("0,x,1", 1)],
        *[("GPU-1f,GPU-2a", 2), ("GPU-1f,0", 1), ("GPU-1f,GPU-1f", 0), ("MIG-a,GPU-b", 1)],
        ("7", 0),
    ],
)
def test_list_of_visible_devices_is_counted(value: str, count: int, tmp_path: Path) -> None:
    nvidia(tmp_path, 0, 1, 2, 3)
    found = find_visible_gpus({"CUDA_VISIBLE_DEVICES": value}, str(tmp_path))
    shown = value if value == value.strip() != "" else repr(value)
    assert (found.count, found.counted) == (count, f"CUDA_VISIBLE_DEVICES={shown}")


def test_machine_without_gpus_has_none_visible(tmp_path: Path) -> None:
    assert find_visible_gpus({}, str(tmp_path)) == VisibleGpus()
    # The user knows better.
    assert find_visible_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, str(tmp_path)).count == 2


def test_gpus_of_the_driver_are_found(tmp_path: Path) -> None:
    """Those alone whose device files are here, and that are still on their bus."""
    nvidia(tmp_path, 2, 0, 1)
    assert find_visible_gpus({}, str(tmp_path)) == VisibleGpus((0, 1, 2), counted=PROC)
    write(tmp_path / "sys/bus/pci/devices/0000:02:00.0/config", "\xff\xff")
    assert find_visible_gpus({}, str(tmp_path)).ids == (0, 1)
    (tmp_path / "dev/nvidia1").unlink()
    assert find_visible_gpus({}, str(tmp_path)).ids == (0,)
    (tmp_path / "dev/nvidia2").unlink()
    assert find_visible_gpus({}, str(tmp_path)).ids == ()


def test_inaccessible_device_is_not_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a scheduler's cgroup forbids it, which access() says, to root as well."""
    nvidia(tmp_path, 0, 1)
    real = os.access

    def access(path: str, mode: int) -> bool:
        return real(path, mode) and not path.endswith("dev/nvidia1")

    monkeypatch.setattr(os, "access", access)
    assert find_visible_gpus({}, str(tmp_path)).ids == (0,)


def test_device_files_without_a_folder_are_counted(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        write(tmp_path / "dev" / name, "")
    assert find_visible_gpus({}, str(tmp_path)) == VisibleGpus((0, 1), counted="/dev/nvidia*")


def test_cpu_platform_hides_gpus(tmp_path: Path) -> None:
    nvidia(tmp_path, 0, 1)
    found = find_visible_gpus({"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "0"}, str(tmp_path))
    assert found == VisibleGpus(counted="JAX_PLATFORMS=cpu")


def test_visible_devices_variable_limits_gpus(tmp_path: Path) -> None:
    nvidia(tmp_path, 0, 1, 2, 3)
    ids = {"2,3": (2, 3), "3,9": (3,), "0": (0,), "x": (0, 1, 2, 3)}
    assert {value: find_visible_gpus({IDS: value}, str(tmp_path)).ids for value in ids} == ids


def test_mig_devices_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi alone has their uuids, also where it fails because of another GPU."""
    nvidia(tmp_path, 0, 1)
    smi = tmp_path / "bin/nvidia-smi"
    write(
        smi,
        "#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-5)'\n"
        "echo '  MIG 3g.20gb     Device  0: (UUID: MIG-aa-1)'\n"
        "echo '  MIG 3g.20gb     Device  1: (UUID: MIG-GPU-5/2/0)'\n"
        "echo 'Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.'\nexit 9\n",
    )
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", f"{smi.parent}:/bin:/usr/bin")
    assert find_visible_gpus({}, str(tmp_path)).mig == ()
    capabilities = tmp_path / "proc/driver/nvidia/capabilities"
    write(capabilities / "gpu0/mig/gi1/ci0/access", "")
    uuids = ("MIG-aa-1", "MIG-GPU-5/2/0")
    assert find_visible_gpus({}, str(tmp_path)) == VisibleGpus((0, 1), uuids, "nvidia-smi -L")
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-aa-1"}
    assert find_visible_gpus(environ, str(tmp_path)).mig == ("MIG-aa-1",)


@pytest.mark.parametrize(
    ("environ", "count", "counted"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,2,3"}, 3, "ROCR_VISIBLE_DEVICES=1,2,3"),
        ({"HIP_VISIBLE_DEVICES": "0,1"}, 2, "HIP_VISIBLE_DEVICES=0,1"),
        (
            {"ROCR_VISIBLE_DEVICES": "GPU-a,GPU-b", "HIP_VISIBLE_DEVICES": "0,1,2"},
            *(2, "HIP_VISIBLE_DEVICES=0,1,2"),
        ),
        ({"ROCR_VISIBLE_DEVICES": ""}, 0, "ROCR_VISIBLE_DEVICES=''"),
        ({"ZE_AFFINITY_MASK": "0.0,0.1,1"}, 3, "ZE_AFFINITY_MASK=0.0,0.1,1"),
        ({"ZE_AFFINITY_MASK": ""}, 0, "ZE_AFFINITY_MASK=''"),
    ],
)
def test_gpus_of_amd_and_intel_are_those_that_variables_name(
    environ: dict[str, str], count: int, counted: str, tmp_path: Path
) -> None:
    found = find_visible_gpus(environ, str(tmp_path))
    assert (found.ids, found.counted) == (tuple(range(count)), counted)


def test_own_variable_says_whose_gpus_are_meant(tmp_path: Path) -> None:
    nvidia(tmp_path, 0, 1)
    named = {"HIP_VISIBLE_DEVICES": "0", "ZE_AFFINITY_MASK": "0"}
    assert find_visible_gpus(named, str(tmp_path)).counted == "HIP_VISIBLE_DEVICES=0"
    assert find_visible_gpus({**named, CUDA: "1"}, str(tmp_path)).counted == f"{CUDA}=1"
    assert find_visible_gpus({"ZE_AFFINITY_MASK": "0"}, str(tmp_path)).counted == PROC


@pytest.mark.parametrize(
    ("environ", "hiding"),
    [
        ({CUDA: ""}, "CUDA_VISIBLE_DEVICES=''"),
        ({CUDA: "-1"}, "CUDA_VISIBLE_DEVICES=-1"),
        ({CUDA: "7"}, "CUDA_VISIBLE_DEVICES=7"),
        *[({CUDA: "1"}, ""), ({IDS: "9"}, ""), ({}, ""), ({"HIP_VISIBLE_DEVICES": ""}, "")],
    ],
)
def test_setting_that_hides_all_gpus_is_found(
    environ: dict[str, str], hiding: str, tmp_path: Path
) -> None:
    nvidia(tmp_path / "nvidia", 0, 1)
    found = [find_hiding_setting(environ, str(tmp_path / root)) for root in ("nvidia", "none")]
    assert found == [hiding, ""]


# --- sharing ---


def gpus(count: int) -> VisibleGpus:
    return VisibleGpus(tuple(range(count)), counted=PROC)


def test_gpus_are_shared_equally() -> None:
    assert share_out(JOB, 8, gpus(8)).of_ranks == tuple((number,) for number in range(8))
    assert share_out(JOB, 4, gpus(8)).of_ranks == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert share_out(JOB, 1, gpus(8)).of_ranks == share_out(JOB, 2, gpus(0)).of_ranks == ()


def test_gpus_that_nothing_names_are_not_assigned() -> None:
    share = share_out(JOB, 2, VisibleGpus())
    assert (share.of_ranks, share.memory, share.words) == ((), "", "")
    assert "is not known, so none is assigned: name AMD's or Intel's, as in" in share.shared
    with pytest.raises(LaunchError, match=r"or name AMD's .*HIP_VISIBLE_DEVICES=0,1"):
        share_out(JOB.copy_with(gpus_per_process=1), 2, VisibleGpus())


@pytest.mark.parametrize(
    ("ranks", "count", "words"),
    [
        (
            3,
            8,
            f"3 ranks cannot share 8 GPUs equally, and each uses all 8 ({MEMORY}=0.25): use -n 2 or",
        ),
        (3, 8, "use -n 2 or 4, or choose with --gpus-per-process K|all"),
        (
            3,
            2,
            f"cannot share 2 GPUs equally, and each uses both ({MEMORY}=0.25): use -n 2, or -d K",
        ),
        (9, 8, "0.083): use -n 8, or -d K for CPU devices, or --gpus-per-process all to share"),
        (2, 3, "use -n 1 or 3, or choose"),
        (
            2,
            1,
            "and each uses it (XLA_PYTHON_CLIENT_MEM_FRACTION=0.375): use -n 1, or -d K for CPU",
        ),
    ],
)
def test_unequal_shares_are_not_assigned(ranks: int, count: int, words: str) -> None:
    share = share_out(JOB.copy_with(num_processes=ranks), ranks, gpus(count))
    assert words in share.shared
    memory = share.shared.partition("=")[2].partition(")")[0]
    assert (share.of_ranks, share.make_settings(0, hook=True)) == ((), {MEMORY: memory})
    start = words.partition("use -n ")[2].partition(",")[0]
    assert f": start {start}" in share_out(JOB, ranks, gpus(count)).shared  # on one of two hosts


@pytest.mark.parametrize("count", [1, 2])
def test_each_rank_that_uses_all_gpus_gets_its_part_of_the_memory(count: int) -> None:
    job = JOB.copy_with(gpus_per_process="all")
    share = share_out(job, 2, gpus(count))
    assert share.make_settings(1, hook=True) == {MEMORY: "0.375"}
    which = "1 GPU" if count == 1 else "2 GPUs"
    assert share.shared == f"2 ranks share {which}, each with {MEMORY}=0.375; -x sets another"
    assert share_out(job, 1, gpus(count)) == share_out(job, 2, gpus(0)) == GpuShares()
    assert share_out(job, 10_000, gpus(count)).memory == "0.001"


@pytest.mark.parametrize(
    ("environ", "is_set"),
    [
        ({}, False),
        ({MEMORY: "0.5"}, True),
        ({"XLA_CLIENT_MEM_FRACTION": "0.5"}, True),
        ({MEMORY: ""}, False),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, False),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, True),
    ],
)
def test_users_choice_of_memory_is_kept(
    environ: dict[str, str], is_set: bool, tmp_path: Path
) -> None:
    nvidia(tmp_path, 0)
    found = find_visible_gpus(environ, str(tmp_path))
    for job in (JOB, JOB.copy_with(gpus_per_process="all")):
        share = share_out(job, 2, found)
        assert share.make_settings(0, hook=True) == ({} if is_set else {MEMORY: "0.375"})
        assert (MEMORY in share.shared) is not is_set


def test_user_settings_prevent_gpu_assignment() -> None:
    for changes in (*({"cpu_devices": 2}, {"env": (("JAX_PLATFORMS", "cpu"),)}),):
        assert share_out(JOB.copy_with(**changes), 2, gpus(8)) == GpuShares()
    for name in (IDS, CUDA):
        own = JOB.copy_with(env=((name, "{local_process_id}"),))
        for each in (None, "all"):
            share = share_out(own.copy_with(gpus_per_process=each), 2, gpus(8))
            assert share == GpuShares(words=f"as -x {name} says")


def test_gpus_restricted_by_the_user_are_shared_out() -> None:
    job = JOB.copy_with(env=(("CUDA_VISIBLE_DEVICES", "4,5"),))
    share = share_out(job, 2, VisibleGpus((0, 1), counted="CUDA_VISIBLE_DEVICES=4,5"))
    assert share.make_settings(1, hook=False) == {"JAX_LOCAL_DEVICE_IDS": "1"}
    assert describe_gpus({Host(name="a", slots=2): share, Host(name="b", slots=2): share}) == [
        "GPUs: 1 for each rank, of 2 GPUs (CUDA_VISIBLE_DEVICES=4,5)"
    ]
    assert describe_gpus(
        {Host(name="a", slots=2): share, Host(name="b", slots=2): GpuShares()}
    ) == ["GPUs: 1 for each rank, of 2 GPUs (CUDA_VISIBLE_DEVICES=4,5), on a"]


def test_number_of_gpus_and_own_assignment_clash() -> None:
    job = JOB.copy_with(gpus_per_process=1, env=(("CUDA_VISIBLE_DEVICES", "{local_process_id}"),))
    with pytest.raises(LaunchError, match="cannot be combined with -x CUDA_VISIBLE_DEVICES"):
        share_out(job, 2, gpus(8))


def test_each_rank_gets_one_mig_device() -> None:
    found = VisibleGpus((0, 1, 2), ("MIG-a", "MIG-b", "MIG-c"), "nvidia-smi -L")
    share = share_out(JOB, 2, found)
    assert share.make_settings(1, hook=False) == {
        "CUDA_VISIBLE_DEVICES": "MIG-b",
        "JAX_LOCAL_DEVICE_IDS": "0",
    }
    assert "no rank has its own" in share_out(JOB, 4, found).shared
    with pytest.raises(LaunchError, match="CUDA gives a process one MIG device"):
        share_out(JOB.copy_with(gpus_per_process=2), 1, found)


def test_shared_gpus_get_one_note_per_host() -> None:
    state = run_of(4)
    for rank, run in state.ranks.items():
        run.host, run.share.shared_gpus = "aabb"[rank], "how to share them"
    for rank, platform in ((0, "cpu"), (1, "cuda"), (3, "rocm")):
        state.ranks[rank].membership.backend = Backend(platform, 8)
    lines = [found.words for found in shared_gpus(View(state, 1.0))]
    assert lines == ["host a: how to share them", "host b: how to share them"]
