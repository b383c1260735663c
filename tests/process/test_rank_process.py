"""What a rank's process gets from the system, however it is started; --nice."""

import shutil
from pathlib import Path

import pytest
from jobs import LAUNCHER, PORTABLE, Jobs
from remote import FAKE_SSH

import mcjax_launch

PROGRAM = """
import os, signal, sys
unseen = "mine" not in sys.modules
import mine
rank = os.environ["JAX_PROCESS_ID"]
alarm = signal.alarm(0)
group = "/proc/self/autogroup"
shown = open(group).read().split()[-1] if os.path.exists(group) else None
forked = unseen and mine.by != os.getpid()
nice = os.getpriority(os.PRIO_PROCESS, 0)
print(*(f"{name}={value}" for name, value in dict(
    rank=rank, forked=forked, nice=nice, group=shown or nice, alarm=alarm).items()))
"""
#: Options, and whether ranks are forked.
WAYS = {
    "spawned": (["--preload", "none"], False),
    "forked": (["--preload", "mine"], True),
    "wrapped": (["--preload", "none", "--wrap", "env A=1"], False),
    "forked elsewhere": (["--preload", "mine", "--via", FAKE_SSH], True),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("import os; by = os.getpid()")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def seen(
    jobs: Jobs,
    folder: Path,
    way: str,
    *options: object,
    launcher: list[str] | None = None,
    **environ: str,
) -> list[str]:
    """What two ranks see that are started in this way; nothing else is printed."""
    words, forked = WAYS[way]
    where = ["--hosts", "a:2"] if "--via" in words else ["-n", 2]
    command = ["--no-prefix", *where, *words, *options, "program.py"]
    ended = jobs.run(*command, launcher=launcher, cwd=folder, env=environ)
    assert ended.status == 0, ended.stderr
    begins = [f"rank={rank} forked={forked and not PORTABLE} " for rank in range(2)]
    lines = sorted(ended.stdout.splitlines())
    assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=True)] == begins
    return [line[len(begin) :] for line, begin in zip(lines, begins, strict=True)]


@pytest.mark.parametrize("way", WAYS)
def test_nice_holds_for_rank_and_session(jobs: Jobs, folder: Path, way: str) -> None:
    """The rank's session too, without which Linux would not heed it."""
    assert seen(jobs, folder, way, "--nice", 7) == ["nice=7 group=7 alarm=0"] * 2


@pytest.mark.parametrize("way", ["spawned", "forked"])
def test_higher_inherited_nice_value_is_kept(jobs: Jobs, folder: Path, way: str) -> None:
    niced = ["nice", "-n", "10", *LAUNCHER]
    for line in seen(jobs, folder, way, "--nice", 5, launcher=niced):
        assert line.startswith("nice=10 ")


@pytest.mark.only_linux("lets a process act before its program")
@pytest.mark.parametrize("way", ["spawned", "forked"])
def test_a_new_setting_reaches_every_rank(jobs: Jobs, folder: Path, way: str) -> None:
    """It is added in the one list alone; a process that is forked inherits no alarm."""
    package = Path(mcjax_launch.__file__).parent
    copy = folder / "copy" / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "wire" / "rank_process.py"
    text = path.read_text()
    for line, with_alarm in {
        "    nice: int = 0\n": "    nice: int = 0\n    alarm: int = 12_345\n",
        "        if self.nice:\n": "        signal.alarm(self.alarm)\n        if self.nice:\n",
        "import os\n": "import os\nimport signal\n",
    }.items():
        assert text.count(line) == 1
        text = text.replace(line, with_alarm)
    path.write_text(text)
    lines = seen(jobs, folder, way, PYTHONPATH=str(copy.parent))
    assert all(int(line.rpartition("alarm=")[2]) > 12_000 for line in lines), lines
