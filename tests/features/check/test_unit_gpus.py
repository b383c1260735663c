"""What --check finds out of GPUs and interfaces, in made-up trees of a host's file system."""

import os
from pathlib import Path

import psutil
import pytest

from mcjax_launch.features.check import agent, probe
from mcjax_launch.features.check.messages import GpuFacts, GpuMemory, NetworkInterface
from mcjax_launch.kernel.wire import gpus

MODEL = "NVIDIA H100 80GB HBM3"
INFORMATION = f"""Model: \t\t {MODEL}
IRQ:   \t\t 18
GPU UUID: \t GPU-%d1f2e3d4-aaaa-bbbb-cccc-0123456789ab
Video BIOS: \t 96.00.74.00.1A
Bus Type: \t PCIe
Device Minor: \t %d
GPU Excluded:\t No
"""
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build  "
    "(dvs-builder@U22-I3-H04-03-1)  Sat Sep 20 00:47:16 UTC 2025\n"
)
GCC = "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
LISTED = "".join(
    f"{number}, GPU-{number}1f2e3d4-aaaa-bbbb-cccc-0123456789ab, {MODEL}, 570.195.03, {free}, 81559\n"
    for number, free in enumerate((80994, 9731))
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def nvidia(root: Path, count: int, version: str = OPEN) -> str:
    for number in range(count):
        folder = root / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0"
        write(folder / "information", INFORMATION % (number, number))
        write(root / f"dev/nvidia{number}", "")
    write(root / "proc/driver/nvidia/version", version + GCC)
    return str(root)


def memory(number: int, free_mib: int) -> GpuMemory:
    return GpuMemory(number, 81559 << 10, free_mib << 10)


@pytest.mark.parametrize(("version", "number"), [(CLOSED, "535.104.05"), (OPEN, "570.195.03")])
def test_gpus_are_read_from_the_drivers_files(tmp_path: Path, version: str, number: str) -> None:
    root = nvidia(tmp_path, 2, version)
    assert agent.survey_gpus("", {}, root) == ((GpuFacts(MODEL, number, 2),), ())


@pytest.mark.parametrize(
    ("chosen", "which"), [("1", [1]), ("1,0", [0, 1]), ("GPU-11f2", [1]), ("", []), ("7", [])]
)
def test_gpu_memory_is_read_for_visible_gpus_only(
    tmp_path: Path, chosen: str, which: list[int]
) -> None:
    found = agent.survey_gpus(LISTED, {"CUDA_VISIBLE_DEVICES": chosen}, nvidia(tmp_path, 2))
    kinds = (GpuFacts(MODEL, "570.195.03", len(which)),) if which else ()
    assert found == (kinds, tuple(memory(gpu, (80994, 9731)[gpu]) for gpu in which))


def test_gpus_are_found_without_the_drivers_folder(tmp_path: Path) -> None:
    """As on Windows' Linux, or where only device files are there."""
    both = (GpuFacts(MODEL, "570.195.03", 2),), (memory(0, 80994), memory(1, 9731))
    assert agent.survey_gpus(LISTED, {}, str(tmp_path)) == both
    write(tmp_path / "dev/nvidia0", "")
    assert agent.survey_gpus("", {}, str(tmp_path))[0] == (GpuFacts("GPU", "", 1),)


@pytest.mark.parametrize(
    "listed",
    [
        "GPU 0: NVIDIA H100 (UUID: GPU-00000000)\n",
        LISTED.replace("81559", "[N/A]"),
        LISTED.replace("81559", "9" * 5000),
        LISTED.splitlines()[0],
        "No devices were found\n",
    ],
)
def test_unknown_gpu_memory_is_left_out(tmp_path: Path, listed: str) -> None:
    kinds, found = agent.survey_gpus(listed, {}, nvidia(tmp_path, 2))
    assert (kinds, found) == ((GpuFacts(MODEL, "570.195.03", 2),), ())


def test_amd_gpus_are_surveyed(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", "cpu_cores_count 96\nsimd_count 0\ndrm_render_minor 0\n")
    for minor in (128, 129):
        properties = f"simd_count 1216\ngfx_target_version 90402\ndrm_render_minor {minor}\n"
        write(nodes / f"{minor}/properties", f"{properties}location_id {minor << 8}\ndomain 0\n")
        write(tmp_path / f"dev/dri/renderD{minor}", "")
        device = tmp_path / f"sys/bus/pci/devices/0000:{minor:02x}:00.0"
        write(device / "mem_info_vram_total", f"{192 << 30}\n")
        write(device / "mem_info_vram_used", f"{2 << 30}\n")
    write(tmp_path / "sys/module/amdgpu/version", "6.10.5\n")
    whole = tuple(GpuMemory(number, 192 << 20, 190 << 20) for number in (0, 1))
    found = agent.survey_gpus("", {}, str(tmp_path))
    assert found == ((GpuFacts("AMD gfx942", "6.10.5", 2),), whole)
    for device in (tmp_path / "sys/bus/pci/devices").iterdir():
        write(device / "product_name", "AMD Instinct MI300X OAM\n")
    found = agent.survey_gpus("", {"HIP_VISIBLE_DEVICES": "1"}, str(tmp_path))
    assert found == ((GpuFacts("AMD Instinct MI300X OAM", "6.10.5", 1),), ())


def test_unresponsive_gpu_tool_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    write(tmp_path / "nvidia-smi", f"#!/bin/sh\necho $$ >>{pids}\nexec sleep 1000\n")
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpus.run_nvidia_smi(0.2) == ""
    assert [pid for pid in map(int, pids.read_text().split()) if psutil.pid_exists(pid)] == []


def test_survey_of_a_machine_without_gpus_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.run_nvidia_smi(1.0) == ""
    assert agent.survey_gpus("", {}, str(tmp_path)) == ((), ())
    assert agent.read_shared_memory_kib(str(tmp_path)) == (0, 0)


def test_probe_asks_for_packages_that_jax_needs() -> None:
    for name in ("jax-cuda13-plugin", "jax-cuda12-pjrt", "jax-rocm7-plugin", "nvidia-nccl-cu12"):
        assert name in probe.PACKAGES


def test_interfaces_are_listed_with_mtu_and_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bond has a speed, a container's pair none that means anything."""
    known = [("lo", "127.0.0.1"), ("bond0", "10.0.0.1"), ("veth0", "10.1.0.1")]
    monkeypatch.setattr(agent, "list_interface_addresses", lambda: known)
    net = tmp_path / "sys/class/net"
    for name, speed in (("bond0", "50000"), ("veth0", "10000"), ("ib0", "-1")):
        write(net / name / "mtu", "9000\n")
        write(net / name / "speed", f"{speed}\n")
    write(net / "bond0/lower_eth0/mtu", "9000\n")
    write(net / "ib0/device/vendor", "0x15b3\n")
    six = "20010db8000000000000000000000001 04 40 00 80      ib0\n"
    write(tmp_path / "proc/net/if_inet6", f"nonsense\n{six}")
    asked = ["10.1.0.1", "10.0.0.1", "2001:db8::1", "203.0.113.1"]
    assert agent.find_interfaces(asked, str(tmp_path)) == (
        NetworkInterface("10.1.0.1", "veth0", 9000, 0),
        NetworkInterface("10.0.0.1", "bond0", 9000, 50_000),
        NetworkInterface("2001:db8::1", "ib0", 9000, 0),
    )
