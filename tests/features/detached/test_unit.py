"""The folders of detached jobs: how each job is, which are kept, and which could be another user's."""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.commands import collect_fields, list_jobs
from mcjax_launch.features.detached.jobs import JobFolder, find, find_all_jobs, identify
from mcjax_launch.features.detached.output import _GAP, OutputFile, read, read_last_line

DAY_S = 86400.0


made: list[JobFolder] = []


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path / "mcjax-launch" / "jobs"
    for folder in made:
        os.close(folder.fd)
        os.close(folder.output._fd)
    made.clear()


def begun(number: int, *, age_s: float = 0.0, **changes: object) -> JobFolder:
    """A running job's folder, with changes to what it tells."""
    about: dict[str, Any] = {"program": ["train.py"], "ranks": 2, "hosts": ["localhost"], **changes}
    folder = JobFolder(f"{number:08x}", about)
    made.append(folder)
    told = json.loads((path := find_path(number) / "job.json").read_text().partition("\n")[0])
    line = f"{json.dumps({**told, **changes, 'since': time.time() - age_s})}\n"
    path.write_bytes(line.encode() + b" " * 4096)
    folder._end_at = len(line)
    return folder


def find_path(number: int) -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "mcjax-launch" / "jobs" / f"{number:08x}"


def gone(number: int, **settings: Any) -> None:
    """Make the folder of a job whose launcher was killed."""
    fcntl.flock(begun(number, **settings).fd, fcntl.LOCK_UN)


def ended(number: int, status: int = 0, message: str = "done", **settings: Any) -> None:
    """Make the folder of a job that has ended."""
    folder = begun(number, **settings)
    folder.write_end(status, message)
    fcntl.flock(folder.fd, fcntl.LOCK_UN)


def states() -> dict[str, str]:
    return {job.id[-2:]: job.state for job in find_all_jobs()}


def test_state_of_each_job_is_found() -> None:
    begun(1)
    ended(2)
    gone(3)
    first, second = find_all_jobs(), find_all_jobs()  # nor does one reader count for another
    assert states() == {"01": "running", "02": "ended", "03": "lost"}
    assert [job.exit_status for job in first] == [None, 0, 255]
    assert first == second


@pytest.mark.parametrize("what", range(4), ids=["host", "boot", "namespace", "started"])
def test_process_that_is_not_the_launcher_gets_no_signal(what: int) -> None:
    """It has the launcher's pid on another machine, in another container, or after a restart."""
    with subprocess.Popen(["sleep", "60"]) as other:
        launcher = identify(other.pid)
        begun(1, pid=other.pid, launcher=launcher)
        launcher[what] = "another"
        begun(2, pid=other.pid, launcher=launcher)
        job = find("00000002")
        assert job.state == "running" and collect_fields(job)["launcher_pid"] is None
        where = "on another, as" if what == 0 else "on .* in another container"
        with pytest.raises(LaunchError, match=f"job 00000002 runs {where}"):
            job.signal(signal.SIGTERM, "stop")
        assert other.poll() is None
        find("00000001").signal(signal.SIGTERM, "stop")
        assert other.wait() == -signal.SIGTERM


def test_last_forty_ended_jobs_are_kept(state_home: Path) -> None:
    """However old they are by the clock, which may be wrong."""
    begun(0, age_s=900 * DAY_S)
    for number in range(3, 45):
        ended(number, age_s=100 * DAY_S - number)
    kept = sorted(states())
    assert kept == ["00", *(f"{number:02x}" for number in range(5, 45))]
    assert sorted(folder.name[-2:] for folder in state_home.iterdir()) == kept


LINES = [b"%06d\n" % number * 8 for number in range(20_000)]


def test_only_the_end_of_a_long_output_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mcjax_launch.features.detached.output.MOST_BYTES", 1 << 16)
    file = OutputFile(str(tmp_path))
    for line in LINES:
        file.write(line)
    assert (tmp_path / "output").stat().st_blocks * 512 < 1 << 18
    assert read_last_line(str(tmp_path)) == "019999"
    first, *rest = b"".join(iter(partial(next, read(str(tmp_path), whole=True)), b"")).splitlines()
    assert first + b"\n" == _GAP
    assert 7 * len(rest) + 7 >= 1 << 16 and rest == b"".join(LINES).splitlines()[-len(rest) :]


def test_reader_follows_a_job_whose_old_output_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without loss while it keeps up; what it misses otherwise is told."""
    monkeypatch.setattr("mcjax_launch.features.detached.output.MOST_BYTES", 1 << 16)
    file = OutputFile(str(tmp_path))
    reader = read(str(tmp_path), whole=True)
    assert next(reader) == b""
    for at in range(0, len(LINES), 100):
        for line in LINES[at : at + 100]:
            file.write(line)
        assert b"".join(iter(partial(next, reader), b"")) == b"".join(LINES[at : at + 100])
    for line in LINES:
        file.write(line)
    missed = b"".join(iter(partial(next, reader), b"")).splitlines()
    assert [line for line in missed if b"not kept" in line] == [_GAP.strip()]
    assert missed[-1] == b"019999"


def test_all_output_is_kept_where_files_have_no_holes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mcjax_launch.features.detached.output.MOST_BYTES", 1 << 16)
    monkeypatch.setattr("mcjax_launch.features.detached.output._PUNCH", 0x4000)
    file = OutputFile(str(tmp_path))
    for line in LINES:
        file.write(line)
    shown = b"".join(iter(partial(next, read(str(tmp_path), whole=True)), b""))
    assert shown == b"".join(LINES)


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Fill a small disk with the folder of the jobs to its last byte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))

    def fill() -> None:
        with (disk / "filling").open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(4096))

    yield fill
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_end_of_a_job_is_recorded_on_a_full_disk(full_disk: Callable[[], None]) -> None:
    """What is dropped of its output is counted, and said."""
    about = {"program": ["train.py", "x" * 7500], "ranks": 2, "hosts": ["localhost"]}
    made.append(folder := JobFolder("00000001", about))
    folder.output.write(b"first\n")
    full_disk()
    folder.output.write(bytes(5000))
    folder.write_end(3, "rank 0 failed: \U0001f4a5" * 99)
    fcntl.flock(folder.fd, fcntl.LOCK_UN)
    job = find("00000001")
    assert (job.state, job.exit_status) == ("ended", 3)
    assert job.message.endswith(
        "...; 910 bytes of its output are not kept: No space left on device"
    )
    with pytest.raises(LaunchError, match="No space left on device: set XDG_STATE_HOME"):
        JobFolder("00000002", {})


def test_state_of_a_job_on_another_machine_is_its_last_record() -> None:
    gone(1, launcher=["elsewhere", "", "", ""])
    ended(2, 3, launcher=["elsewhere", "", "", ""])
    assert states() == {"01": "running", "02": "ended"}
    assert collect_fields(find("00000001"))["launcher_host"] == "elsewhere"
    with pytest.raises(LaunchError, match=r"job 00000001 runs on elsewhere, as process \d+: "):
        find("00000001").signal(0, "attach")
    find("00000002").signal(0, "attach")


def test_what_is_no_job_is_kept(state_home: Path) -> None:
    gone(1, newer=1)
    (state_home / "notes").mkdir()
    for number, text in enumerate(("", "{", "[]\n\n", '{"id": 1}\n\n', '{"id": 1}'), 2):
        find_path(number).mkdir()
        (find_path(number) / "job.json").write_text(text)
    assert states() == {"01": "lost"}
    assert len(list(state_home.iterdir())) == 7


def test_job_is_found_by_an_unambiguous_prefix() -> None:
    with pytest.raises(LaunchError, match="there is no detached job: mcjax-launch --detach"):
        find("")
    ended(0xAA, age_s=50)
    begun(0xAB, age_s=40)
    ended(0xB0, age_s=30)
    assert find("").id == "000000ab"  # the only one that runs
    begun(0xB1, age_s=20)
    assert find("").id == "000000b1"
    assert find("000000b0").id == "000000b0"
    several = "0000: several job ids begin with that: 000000aa, 000000ab"
    with pytest.raises(LaunchError, match=several):
        find("0000")
    with pytest.raises(LaunchError, match="ff: no such detached job; there are 000000aa, "):
        find("ff")


def test_table_says_what_matters_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why a job has failed, and not what a victim has printed last."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "110")
    program = ("train.py", "--config", "configs/base.yaml", "--name", "a")
    hosts = tuple(f"gpu{number:02d}" for number in range(9))
    begun(1, age_s=9e5, program=program, hosts=hosts)
    for number, status in ((2, 1), (3, 0)):
        folder = begun(number, age_s=5 - number)
        folder.output.write(b"[0]     @ 0x7f start_thread\n")
        folder.write_end(status, "rank 1 failed: ValueError: bad batch")
        fcntl.flock(folder.fd, fcntl.LOCK_UN)
    gone(4)
    gone(5, launcher=["elsewhere", "", "", ""])
    assert list_jobs(as_json=False) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == "ID STATE RANKS HOSTS SINCE PROGRAM LAST LINE".split()
    assert [row.split()[1] for row in rows] == ["running", "ended", "ended", "lost", "unknown"]
    assert {row[10:13] for row in rows} == {row.split()[1][:3] for row in rows}  # in a column
    assert max(map(len, rows)) <= 110
    shown = dict(zip("running failed fine lost unknown".split(), rows, strict=True))
    assert "  rank 1 failed: ValueError" in shown["failed"]
    assert shown["fine"].endswith("  @ 0x7f start_thread")
    assert "  its launcher was killed" in shown["lost"]
    assert shown["unknown"].endswith("  its launcher is on elsewhere")


@pytest.mark.parametrize("mode", [0o710, 0o750, 0o720, 0o701, 0o704])
def test_folder_that_any_other_user_can_open_is_refused(state_home: Path, mode: int) -> None:
    gone(1)
    assert states() == {"01": "lost"}
    state_home.chmod(mode)
    with pytest.raises(LaunchError, match="is open to other users"):
        find_all_jobs()
    state_home.chmod(0o700)


def test_lock_is_not_passed_on() -> None:
    """A program that outlives the job would keep it running."""
    assert not os.get_inheritable(begun(1).fd)
