"""What NVML's stand-in tells of GPUs, in the record, events and findings."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from jobs import LAUNCHER, Jobs, eventually

TESTS = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.only_linux("device files in a namespace"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("cc") is None,
        reason="needs root, unshare and a C compiler",
    ),
]
#: Ranks sleep; what the card does, their pid included, is written before.
WORKS = "util=100 used=1024 procs=$$:520"
SLEEP = 'echo "$1" >$FAKE_NVML.new; mv $FAKE_NVML.new $FAKE_NVML; echo begun; sleep ${2:-4}'


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in, for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("nvml")
    source, target = TESTS / "fake_nvml.c", folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, source], check=True)
    return folder


class Host:
    """This machine with a made-up GPU; `nvml` is what the stand-in tells."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.nvml = folder / "nvml.txt"
        self.nvml.write_text("util=0\n")
        self.env = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(self.nvml)}
        self.launcher = [str(TESTS / "made_up_gpus"), "1", *LAUNCHER]

    def sleep(self, doing: str, seconds: float = 4.0) -> list[str]:
        """A command that sleeps while the card does something."""
        set_pid = SLEEP.replace('"$1"', f'"{doing}"')
        return ["sh", "-c", set_pid.replace("${2:-4}", str(seconds))]


@pytest.fixture
def host(library: Path, tmp_path: Path) -> Host:
    return Host(library, tmp_path)


STALL = ("--stall-timeout", 1.5)


@pytest.mark.parametrize("nvml", ["dead", "slow", "no library"])
def test_job_stalls_as_ever_if_the_driver_tells_nothing(jobs: Jobs, host: Host, nvml: str) -> None:
    env = host.env if nvml != "no library" else {}
    host.nvml.write_text(f"{nvml}\n")
    program = "echo begun; sleep 60"
    words = ["-n", 2, *STALL, "sh", "-c", program]
    ended = jobs.run(*words, launcher=host.launcher, env=env)
    assert ended.status == 124, ended.stderr
    assert "GPU" not in ended.report


def test_driver_that_hangs_does_not_hold_up_the_end(jobs: Jobs, host: Host) -> None:
    host.nvml.write_text("slow\n")
    running = jobs.start(*STALL, "sh", "-c", "echo begun", launcher=host.launcher, env=host.env)
    assert running.finish().status == 0  # a call of the driver's takes 100 s


def test_reader_ends_with_a_killed_agent(jobs: Jobs, host: Host) -> None:
    words = [*STALL, *host.sleep(WORKS, 60)]
    running = jobs.start(*words, launcher=host.launcher, env=host.env)
    running.read_until("begun")
    reader = [each for each in running.agent.children() if "nvml.py" in " ".join(each.cmdline())]
    assert len(reader) == 1
    running.agent.kill()
    assert running.finish().status == 255
    eventually(lambda: not reader[0].is_running())


def test_ranks_on_the_cpu_have_no_reader(jobs: Jobs, host: Host) -> None:
    words = [*STALL, "-d", 1, "sh", "-c", "echo begun; sleep 60"]
    running = jobs.start(*words, launcher=host.launcher, env=host.env)
    running.read_until("begun")
    assert len(running.agent.children()) == 1
    assert running.finish().status == 124


def test_record_and_events_name_the_gpu(jobs: Jobs, host: Host, tmp_path: Path) -> None:
    record, events = tmp_path / "run.json", tmp_path / "events.jsonl"
    words = ["--report", record, "--events", events, *host.sleep(WORKS, 3)]
    ended = jobs.run(*words, launcher=host.launcher, env=host.env)
    assert ended.status == 0, ended.stderr
    [rank] = json.loads(record.read_text())["attempts"][0]["ranks"]
    assert (rank["gpus"], rank["gpu_peak_mib"]) == ("0", 520)
    assert rank["gpu_samples"][0][1:] == [520, 100]
    [gpu] = rank["gpu_use"]
    assert (gpu["name"], gpu["limit_mib"]) == ("NVIDIA H100 80GB HBM3", 81559)
    said = [json.loads(line) for line in events.read_text().splitlines()]
    told = [event for event in said if event["event"] == "gpus"]
    assert [event["rank"] for event in told] == [0]
    assert told[0]["gpus"] == [gpu]


# As XLA's allocator retries; the other rank's process holds most of the card.
RETRIES = """
if [ $MCJAX_LOCAL_PROCESS_ID = 0 ]; then echo $$ >pid; exec sleep 60; fi
until [ -s pid ]; do sleep 0.05; done
echo "util=0 used=60912 procs=$(cat pid):59800,$$:520" >$FAKE_NVML
echo "E cuda_executor.cc:1365] Failed to allocate: CUDA_ERROR_OUT_OF_MEMORY: out of memory" >&2
sleep 60
"""


def test_holder_of_memory_is_named_while_the_allocator_retries(
    jobs: Jobs, host: Host, tmp_path: Path
) -> None:
    running = jobs.start(
        *("-n", 2, "sh", "-c", RETRIES),
        launcher=host.launcher,
        env=host.env,
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    running.read_until(
        "rank 1 found no memory: of GPU 0 (H100 80GB HBM3) 59.5 of 79.6 GiB are in use: "
        "rank 0 58.4 GiB, rank 1 0.5 GiB\n"
    )
    running.kill_now()
    assert running.finish().status == 130
