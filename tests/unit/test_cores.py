"""Which cores of a host its ranks are bound to, also next to GPUs of made-up machines."""

from pathlib import Path

import pytest

from mcjax_launch.job.devices import choose_cores, share_out, split
from mcjax_launch.job.job import Job
from mcjax_launch.machine.gpus import find_visible_gpus
from mcjax_launch.ranks import format_ranges
from mcjax_launch.wire.messages import HostFacts, VisibleGpus


def test_cores_are_split_evenly() -> None:
    assert split([[0], [1], [2], [3]], 2) == [[0, 1], [2, 3]]
    threads = [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert split(threads, 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert split(threads, 4) == threads
    assert split([[0, 2], [1, 3]], 4) == [[0], [2], [1], [3]]
    assert split([[0], [1], [2]], 2) == [[0], [1, 2]]
    assert split([[0], [1]], 4) == [[0], [0], [1], [1]]


# --- next to GPUs ---


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def on_bus(root: Path, bus: str, near: str) -> None:
    write(root / f"sys/bus/pci/devices/{bus}/local_cpulist", f"{near}\n")
    write(root / f"sys/bus/pci/devices/{bus}/config", "ab")


def nvidia(root: Path, cards: dict[str, str], models: dict[str, str] | None = None) -> None:
    """Cards by their buses, with the cores next to them."""
    for minor, (bus, near) in enumerate(cards.items()):
        model = (models or {}).get(bus, "NVIDIA A100-SXM4-40GB")
        text = f"Model: \t\t {model}\nIRQ:   \t\t 300\nGPU UUID: \t GPU-{minor}f-{bus[5:7]}\n"
        information = root / f"proc/driver/nvidia/gpus/{bus}/information"
        write(information, f"{text}Bus Location: \t {bus}\nDevice Minor: \t {minor}\n")
        write(root / f"dev/nvidia{minor}", "")
        on_bus(root, bus, near)


def dgx_a100(root: Path) -> None:
    """Two processors of 64 cores in four nodes each: GPU 0 sits on node 3."""
    nodes = {3: "48-63,176-191", 1: "16-31,144-159", 7: "112-127,240-255", 5: "80-95,208-223"}
    buses = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
    near = [nodes[node] for node in (3, 3, 1, 1, 7, 7, 5, 5)]
    nvidia(root, {f"0000:{bus}:00.0": cores for bus, cores in zip(buses, near, strict=True)})


def bound(how: str, ranks: int, found: VisibleGpus, threads: int) -> list[str]:
    """The cores of each rank, of a machine with two hardware threads a core."""
    cores = tuple((core, core + threads // 2) for core in range(threads // 2))
    job = Job(program=("train.py",), python="python", chdir="/", num_processes=ranks)
    shares = share_out(job, ranks, found)
    return [
        format_ranges(own)
        for own in choose_cores(how, ranks, HostFacts("", "", gpus=found, cores=cores), shares)
    ]


def test_ranks_run_next_to_their_gpus(tmp_path: Path) -> None:
    dgx_a100(tmp_path)
    found = find_visible_gpus({}, str(tmp_path))
    near = ["48-63,176-191", "16-31,144-159", "112-127,240-255", "80-95,208-223"]
    assert bound("auto", 4, found, 256) == near
    assert bound("auto", 8, found, 256) == [cores for cores in near for _ in range(2)]
    assert bound("auto", 1, found, 256) == bound("auto", 3, found, 256)[:1] == [""]
    assert bound("off", 8, found, 256) == [""] * 8


def test_own_share_next_to_the_gpu_is_bound(tmp_path: Path) -> None:
    dgx_a100(tmp_path)
    shares = bound("on", 8, find_visible_gpus({}, str(tmp_path)), 256)
    assert shares[:4] == ["48-55,176-183", "56-63,184-191", "16-23,144-151", "24-31,152-159"]
    assert bound("on", 2, VisibleGpus(), 8) == ["0-1,4-5", "2-3,6-7"]
    assert bound("auto", 2, VisibleGpus(), 8) == ["", ""]


@pytest.mark.parametrize(
    ("environ", "near"),
    [
        ({"CUDA_VISIBLE_DEVICES": "6,2"}, ["80-95,208-223", "16-31,144-159"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-7f-bd,GPU-0f"}, ["80-95,208-223", "48-63,176-191"]),
        ({"JAX_LOCAL_DEVICE_IDS": "4,0"}, ["112-127,240-255", "48-63,176-191"]),
    ],
)
def test_ranks_are_bound_near_their_gpus(
    environ: dict[str, str], near: list[str], tmp_path: Path
) -> None:
    dgx_a100(tmp_path)
    assert bound("auto", 2, find_visible_gpus(environ, str(tmp_path)), 256) == near


def test_unknown_distance_to_gpus_binds_no_cores(tmp_path: Path) -> None:
    """Cards of two models, of which CUDA has the faster one first; cores that may not be used."""
    first, second = "0000:01:00.0", "0000:81:00.0"
    nvidia(tmp_path, {first: "0-7", second: "8-15"}, {first: "Quadro P400"})
    assert bound("auto", 2, find_visible_gpus({}, str(tmp_path)), 16) == ["", ""]
    environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert bound("auto", 2, find_visible_gpus(environ, str(tmp_path)), 16) == ["0-7", "8-15"]
    assert bound("auto", 2, find_visible_gpus(environ, str(tmp_path)), 8) == ["", ""]
    on_bus(tmp_path, first, "0-15")  # a machine with one node
    on_bus(tmp_path, second, "0-15")
    assert bound("auto", 2, find_visible_gpus(environ, str(tmp_path)), 16) == ["", ""]
