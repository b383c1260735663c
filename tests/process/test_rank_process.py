"""What a rank's process gets from the system, however it is started."""

import shutil
from pathlib import Path

import pytest
from jobs import PORTABLE, Jobs

import mcjax_launch

PROGRAM = """
import os, signal, sys
unseen = "mine" not in sys.modules
import mine
rank = os.environ["JAX_PROCESS_ID"]
alarm = signal.alarm(0)
forked = unseen and mine.by != os.getpid()
print(f"rank={rank} forked={forked} alarm={alarm}")
"""
#: Options, and whether ranks are forked.
WAYS = {
    "spawned": (["--preload", "none"], False),
    "forked": (["--preload", "mine"], True),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("import os; by = os.getpid()")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def seen(jobs: Jobs, folder: Path, way: str, **environ: str) -> list[str]:
    """What two ranks see that are started in this way; nothing else is printed."""
    words, forked = WAYS[way]
    command = ["--no-prefix", "-n", 2, *words, "program.py"]
    ended = jobs.run(*command, cwd=folder, env=environ)
    assert ended.status == 0, ended.stderr
    begins = [f"rank={rank} forked={forked and not PORTABLE} " for rank in range(2)]
    lines = sorted(ended.stdout.splitlines())
    assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=True)] == begins
    return [line[len(begin) :] for line, begin in zip(lines, begins, strict=True)]


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
        "    cores: tuple[int, ...] = ()\n": "    cores: tuple[int, ...] = ()\n    alarm: int = 12_345\n",
        "        if self.cores:\n": "        signal.alarm(self.alarm)\n        if self.cores:\n",
        "import os\n": "import os\nimport signal\n",
    }.items():
        assert text.count(line) == 1
        text = text.replace(line, with_alarm)
    path.write_text(text)
    lines = seen(jobs, folder, way, PYTHONPATH=str(copy.parent))
    assert all(int(line.rpartition("alarm=")[2]) > 12_000 for line in lines), lines
