"""What can be tried where GPUs only seem to be: device files, and a stand-in for CUDA's driver."""

import os
import shutil
from pathlib import Path

import documented
import pytest
from jobs import LAUNCHER, Jobs
from pages import Session

HERE = Path(__file__).parent
MADE_UP_GPUS = [str(HERE.parent / "made_up_gpus"), "2", *LAUNCHER]

pytestmark = [
    pytest.mark.only_linux("device files in a namespace"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"
    ),
]

# As CUDA's: what has been started before a fork is of no use after it.
DRIVER = """
import os

_started_by = None

def start():
    global _started_by
    if _started_by is None:
        _started_by = os.getpid()
        os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
        os.open("/dev/nvidia0", os.O_RDWR | os.O_CLOEXEC)

def devices():
    start()
    if _started_by != os.getpid():
        raise RuntimeError("CUDA_ERROR_NOT_INITIALIZED: initialization error")
    return 2
"""
# As jax-cuda12-plugin's: it counts the devices before it registers itself.
PLUGIN = "import driver\ndef initialize():\n    driver.devices()\n"
PROGRAM = "import mine, driver; print('devices', driver.devices())"
IMPORTS = {
    "import driver; driver.devices()": (
        "an import has started an accelerator's driver (/dev/nvidia"
    ),
    "import driver, jax": "",
    """
import jax._src.xla_bridge
try:
    jax._src.xla_bridge.make_pjrt_topology("cuda")
except NotImplementedError:
    pass
""": "an import has started an accelerator's driver (/dev/nvidia",
}


@pytest.mark.parametrize("body", IMPORTS)
def test_no_rank_is_forked_from_a_process_with_a_driver(
    jobs: Jobs, tmp_path: Path, body: str
) -> None:
    plugin = tmp_path / "jax_plugins" / "made_up" / "__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLUGIN)
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "mine.py").write_text(body)
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["-v", "-n", 2, "--preload", "mine", "program.py"]
    ended = jobs.run(*words, launcher=MADE_UP_GPUS, cwd=tmp_path)
    assert sorted(ended.stdout.splitlines()) == ["[0] devices 2", "[1] devices 2"], ended.stderr
    assert ended.status == 0
    expected = f"--preload: {IMPORTS[body]}" if IMPORTS[body] else "ranks 0-1 forked after"
    assert expected in ended.report
    assert ("started afresh" in ended.report) is bool(IMPORTS[body])


def test_variable_that_hides_the_gpus_is_named(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
        "import jax; jax.distributed.initialize(); jax.devices()"
    )
    ended = jobs.run("-n", 2, "program.py", launcher=MADE_UP_GPUS, cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    line = "although this machine has GPUs: CUDA_VISIBLE_DEVICES='' hides this machine's GPUs (or"
    assert f"all ranks use the CPU, {line}" in ended.report


SHOW_MEMORY = "echo ${XLA_PYTHON_CLIENT_MEM_FRACTION-none}"


@pytest.mark.parametrize(
    ("words", "env", "memory"),
    [
        ([], {}, "0.25"),
        (["--gpus-per-process", "all"], {}, "0.25"),
        ([], {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, "none"),
        (["-x", "XLA_CLIENT_MEM_FRACTION=0.3"], {}, "none"),
        (["--gpus-per-process", "all"], {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1"}, "0.1"),
        (["-d", 1], {}, "none"),
    ],
)
def test_ranks_that_share_gpus_share_their_memory(
    jobs: Jobs, words: list[object], env: dict[str, str], memory: str
) -> None:
    ended = jobs.run("-n", 3, *words, "sh", "-c", SHOW_MEMORY, launcher=MADE_UP_GPUS, env=env)
    assert sorted(ended.stdout.splitlines()) == [f"[{rank}] {memory}" for rank in range(3)]


@pytest.mark.parametrize("session", documented.at(documented.GPUS), ids=str)
def test_documented_command_shares_the_gpus(jobs: Jobs, tmp_path: Path, session: Session) -> None:
    [step] = session.steps
    env = documented.prepare(session, tmp_path, {"train.py": documented.SHARES})
    gpus = [str(HERE.parent / "made_up_gpus"), "8", "bash", "-ec"]
    ended = jobs.run(step.command, launcher=gpus, cwd=tmp_path, env=env)
    assert ended.status == 0, ended.stderr
    assert sorted(line[-1] for line in ended.stdout.splitlines()) == [*"01234567"]
