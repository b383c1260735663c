"""--sync to hosts that keep what was sent: only what has changed is sent, and ranks see all of it."""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs, eventually
from remote import FAKE_SSH

LIST = """
import os
for folder, folders, files in sorted(os.walk(".")):
    for name in sorted(folders + files):
        path = os.path.join(folder, name)
        found = os.lstat(path)
        kind = os.readlink(path) if os.path.islink(path) else oct(found.st_mode)
        told = (found.st_mtime_ns, open(path).read()) if os.path.isfile(path) else ()
        print(path, kind, *("" if os.path.islink(path) else told))
"""
VIA = ["--hosts", "a", "--via", FAKE_SSH, "--python", sys.executable, "--sync", "."]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "pkg/empty").mkdir(parents=True)
    (work / "pkg/part.py").write_text("PART = 1\n")
    (work / "pkg/nothing").touch()
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("pkg/part.py")
    (work / "list.py").write_text(LIST)
    os.utime(work / "run.sh", ns=(10**18, 10**18 + 7))
    return work


def sync(jobs: Jobs, work: Path, *options: object, program: str = "list.py") -> Ended:
    ended = jobs.run(*VIA, *options, program, cwd=work, env={"MCJAX_DEBUG": "frames"})
    assert ended.status == 0, ended.stderr
    return ended


def lacked(ended: Ended) -> list[str]:
    """What the host has asked for: how many files; [] for none."""
    return [
        str(len(found.split(", ")))
        for found in re.findall(r"Lacks\(numbers=\((.*?),?\)\)", ended.stderr)
    ]


def listed(ended: Ended) -> list[str]:
    return [line.partition("] ")[2] for line in ended.stdout.splitlines()]


def lists_itself(work: Path) -> list[str]:
    from subprocess import run

    done = run([sys.executable, "list.py"], cwd=work, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_only_what_has_changed_is_sent(jobs: Jobs, work: Path) -> None:
    first = sync(jobs, work)
    assert lacked(first) == ["3"]
    assert listed(first) == lists_itself(work)
    second = sync(jobs, work)
    assert (lacked(second), listed(second)) == ([], listed(first))
    (work / "pkg/part.py").rename(work / "moved.py")
    (work / "run.sh").unlink()
    (work / "link").unlink()
    (work / "link").symlink_to("moved.py")
    (work / "moved.py").chmod(0o444)
    (work / "new.py").write_text("new")
    third = sync(jobs, work)
    assert lacked(third) == ["1"]
    assert listed(third) == lists_itself(work)


def test_nothing_is_kept_without_leave(jobs: Jobs, work: Path) -> None:
    ended = sync(jobs, work, "--no-host-cache")
    assert listed(ended) == lists_itself(work)
    assert not os.path.exists(os.environ["XDG_CACHE_HOME"])


def test_damaged_and_unusable_contents_are_sent_again(jobs: Jobs, work: Path) -> None:
    first = sync(jobs, work)
    kept = Path(os.environ["XDG_CACHE_HOME"]) / "mcjax-launch/kept"
    for path in kept.iterdir():
        path.write_bytes(b"half")
    again = sync(jobs, work)
    assert (lacked(again), listed(again)) == (["3"], listed(first))
    assert lacked(sync(jobs, work)) == []
    shutil.rmtree(kept)
    kept.touch()  # nothing can be kept there
    without = sync(jobs, work)
    assert (lacked(without), listed(without)) == (["3"], listed(first))


def test_ranks_neither_see_nor_change_another_jobs_files(jobs: Jobs, work: Path) -> None:
    text = "import part, time, os\nprint('ready', flush=True)\nwhile not os.path.exists({!r}): time.sleep(0.01)\nprint(open('part.py').read())\nopen('part.py', 'r+').write('spoilt')"
    (work / "part.py").write_text("first = 1")
    (work / "train.py").write_text(text.format(str(work.parent / "go")))
    running = jobs.start(*VIA, "train.py", cwd=work)
    running.read_until("ready")
    (work / "part.py").write_text("second = 2")
    (work / "other.py").write_text("print(open('part.py').read())\nopen('part.py', 'a').write('x')")
    assert "second = 2" in sync(jobs, work, program="other.py").stdout
    (work.parent / "go").touch()
    ended = running.finish()
    assert ended.status == 0 and "first = 1" in ended.stdout
    assert listed(sync(jobs, work, program="other.py")) == ["second = 2"]
    (work / "part.py").write_text("first = 1")
    assert listed(sync(jobs, work, program="other.py")) == ["first = 1"]


def test_killed_transfer_leaves_nothing_half_done(jobs: Jobs, work: Path) -> None:
    """The launcher is killed while it sends a long file; the next one sends that again."""
    (work / "big").write_bytes(os.urandom(1 << 20) * 64)
    (work / "size.py").write_text(
        "import os, zlib\nprint(os.path.getsize('big'), zlib.crc32(open('big', 'rb').read()))"
    )
    kept = Path(os.environ["XDG_CACHE_HOME"]) / "mcjax-launch/kept"
    running = jobs.start(*VIA, "size.py", cwd=work)
    eventually(kept.exists, 20)
    running.process.send_signal(signal.SIGKILL)
    running.finish()
    eventually(lambda: not jobs.left(), 20)
    assert all(path.stat().st_size < 64 << 20 for path in kept.iterdir())
    import zlib

    content = (work / "big").read_bytes()
    assert listed(sync(jobs, work, program="size.py")) == [f"{64 << 20} {zlib.crc32(content)}"]
