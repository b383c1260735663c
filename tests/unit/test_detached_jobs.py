"""The folders of detached jobs: how each job is, which are kept, and which could be another user's."""

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
from mcjax_launch.features.detached import record
from mcjax_launch.features.detached.folders import iterate_job_folders, make_job_folder
from mcjax_launch.features.detached.jobs import find, find_all_jobs
from mcjax_launch.features.detached.listing import collect_fields, format_table, list_jobs
from mcjax_launch.features.detached.output import _GAP, OutputFile, read
from mcjax_launch.features.detached.record import (
    Description,
    JobEnd,
    identify_machine,
    identify_process,
)

DAY_S = 86400.0


@pytest.fixture(autouse=True)
def _state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def made(number: int, *, age_s: float = 0.0, **changes: object) -> Path:
    """A job's folder, of a launcher that is gone."""
    folder, lock = make_job_folder(f"{number:08x}")
    os.close(lock)
    host, boot = identify_machine()
    job = Description(
        f"{number:08x}", ("train.py",), host, boot, 1, 2, ("localhost",), time.time() - age_s
    )
    record.write_description(folder, job.copy_with(**changes))
    return Path(folder)


def ended(folder: Path, status: int = 0, age_s: float = 0.0) -> None:
    """Write how the job has ended, so long ago."""
    record.write_end(str(folder), JobEnd(status, "both ranks exited with 0", time.time() - age_s))


def states() -> dict[str, str]:
    return {job.id[-2:]: job.state for job in find_all_jobs()}


def test_state_of_each_job_is_found() -> None:
    lock = record.lock(str(made(1)))
    ended(made(2))
    made(3)
    assert states() == {"01": "running", "02": "ended", "03": "lost"}
    statuses = [job.end and job.end.exit_status for job in find_all_jobs()]
    assert statuses == [None, 0, 255]
    os.close(lock)


@pytest.mark.parametrize("field", ["boot", "namespace", "started"])
def test_process_that_is_not_the_launcher_gets_no_signal(field: str) -> None:
    """It has the launcher's pid in another container, or after a restart of the machine."""
    with subprocess.Popen(["sleep", "60"]) as other:
        namespace, started = identify_process(other.pid)
        changes: dict[str, Any] = {"pid": other.pid, "namespace": namespace, "started": started}
        lock = record.lock(str(made(1, **{**changes, field: "another"})))
        job = find("00000001")
        assert job.state == "running" and collect_fields(job)["launcher_pid"] is None
        with pytest.raises(LaunchError, match=r"job 00000001 runs on .* in another container"):
            job.signal(signal.SIGTERM, "stop")
        assert other.poll() is None
        os.close(lock)
        lock = record.lock(str(made(2, **changes)))
        find("00000002").signal(signal.SIGTERM, "stop")
        assert other.wait() == -signal.SIGTERM
        os.close(lock)


def test_commands_that_ask_at_once_do_not_take_each_other_for_the_launcher() -> None:
    folder = made(1)
    os.close(record.lock(str(folder)))
    first, second = find_all_jobs(), find_all_jobs()
    assert [job.state for job in (*first, *second)] == ["lost", "lost"]


def test_last_forty_ended_jobs_are_kept() -> None:
    """However old they are by the clock, which may be wrong."""
    lock = record.lock(str(made(0, age_s=900 * DAY_S)))
    for number in range(3, 45):
        ended(made(number, age_s=100 * DAY_S - number), age_s=100 * DAY_S - number)
    kept = sorted(states())
    assert kept == ["00", *(f"{number:02x}" for number in range(5, 45))]
    assert sorted(folder[-2:] for folder in iterate_job_folders()) == kept
    os.close(lock)


LINES = [b"%06d\n" % number * 8 for number in range(20_000)]


def test_only_the_end_of_a_long_output_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcjax_launch.features.detached.output.MOST_BYTES", 1 << 16)
    folder = made(1)
    file = OutputFile(str(folder))
    for line in LINES:
        file.write(line)
    assert (folder / "output").stat().st_blocks * 512 < 1 << 18
    assert find("00000001").last_line == "019999"
    first, *rest = b"".join(iter(partial(next, read(str(folder), whole=True)), b"")).splitlines()
    assert first == b"mcjax-launch: earlier output is not kept; --log-dir keeps all of it"
    assert 7 * len(rest) + 7 >= 1 << 16 and rest == b"".join(LINES).splitlines()[-len(rest) :]


@pytest.mark.parametrize("makes_holes", [True, False])
def test_reader_follows_a_job_whose_old_output_goes(
    monkeypatch: pytest.MonkeyPatch, *, makes_holes: bool
) -> None:
    """Without loss while it keeps up; what it misses otherwise is told."""
    monkeypatch.setattr("mcjax_launch.features.detached.output.MOST_BYTES", 1 << 16)
    monkeypatch.setattr(
        "mcjax_launch.features.detached.output._PUNCH", 3 if makes_holes else 0x4000
    )
    folder = str(made(1))
    file = OutputFile(folder)
    reader = read(folder, whole=True)
    assert next(reader) == b""
    for at in range(0, len(LINES), 100):
        for line in LINES[at : at + 100]:
            file.write(line)
        if makes_holes:
            printed = b"".join(LINES[at : at + 100])
            assert b"".join(iter(partial(next, reader), b"")) == printed
    for line in LINES:
        file.write(line)
    missed = b"".join(iter(partial(next, reader), b"")).splitlines()
    assert [line for line in missed if b"not kept" in line] == [_GAP.strip()]
    assert missed[-1] == b"019999"


def test_folder_of_a_job_that_starts_slowly_is_kept() -> None:
    """It has no description yet, however long its hosts take; that of a killed launcher goes."""
    (slow, begun), (new, waits), (killed, gone) = (
        make_job_folder(f"{number:08x}") for number in (1, 2, 3)
    )
    os.close(begun)
    starting = record.lock(slow)
    os.close(gone)
    os.close(record.lock(killed))
    for folder in (slow, new, killed):
        os.utime(folder, (time.time() - DAY_S,) * 2)
    assert find_all_jobs() == []
    assert list(map(os.path.exists, (slow, new, killed))) == [True, True, False]
    os.close(waits)
    os.close(starting)
    assert find_all_jobs() == []
    assert list(map(os.path.exists, (slow, new))) == [False, False]


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
    folder = str(made(1))
    record.reserve_end(folder)
    file = OutputFile(folder)
    file.write(b"first\n")
    full_disk()
    file.write(bytes(5000))
    assert states() == {"01": "lost"}
    end = JobEnd(0, "both ranks exited with 0" * 99, time.time(), file.describe_dropped())
    record.write_end(folder, end)
    job = find("00000001")
    assert (job.state, job.end and job.end.exit_status) == ("ended", 0)
    said = "910 bytes of its output are not kept: No space left on device"
    assert str(collect_fields(job)["message"]).endswith(f"...; {said}")
    os.unlink(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(folder))), "filling"))
    file.write(b"last\n")
    *_, dropped, last = b"".join(iter(partial(next, read(folder, whole=True)), b"")).splitlines()
    assert (dropped.decode(), last) == (f"mcjax-launch: {said}", b"last")


def test_state_of_a_job_on_another_machine_is_its_last_record() -> None:
    made(1, host="elsewhere")
    ended(made(2, host="elsewhere"), 3)
    assert states() == {"01": "running", "02": "ended"}
    assert collect_fields(find("00000001"))["launcher_host"] == "elsewhere"


def test_folder_that_is_no_job_is_kept(tmp_path: Path) -> None:
    folder = made(1).parent
    (folder / "notes").mkdir()
    (folder / "job.json").write_text("{}")
    (folder / "00000002").symlink_to(tmp_path)
    assert states() == {"01": "lost"}
    assert (folder / "notes").exists()


def test_link_in_the_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    folder = made(1)
    (folder / "job.json").rename(tmp_path / "elsewhere")
    (folder / "job.json").symlink_to(tmp_path / "elsewhere")
    assert states() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}', '{"state": {}}'])
def test_a_broken_description_is_no_job(text: str) -> None:
    folder = made(1)
    (folder / "job.json").write_text(text)
    assert states() == {}


def test_fields_of_a_newer_version_are_ignored() -> None:
    path = made(1) / "job.json"
    path.write_text(path.read_text().replace("{", '{"newer": 1, ', 1))
    assert states() == {"01": "lost"}


def test_job_is_found_by_an_unambiguous_prefix() -> None:
    with pytest.raises(LaunchError, match="there is no detached job: mcjax-launch --detach"):
        find("")
    ended(made(0xAA, age_s=50))
    first = record.lock(str(made(0xAB, age_s=40)))
    ended(made(0xB0, age_s=30))
    assert find("").id == "000000ab"  # the only one that runs
    second = record.lock(str(made(0xB1, age_s=20)))
    assert find("").id == "000000b1"
    assert find("000000b0").id == "000000b0"
    several = "0000: several job ids begin with that: 000000aa, 000000ab"
    with pytest.raises(LaunchError, match=several):
        find("0000")
    with pytest.raises(LaunchError, match="ff: no such detached job; there are 000000aa, "):
        find("ff")
    os.close(first)
    os.close(second)


def test_table_says_what_matters_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why a job has failed, and not what a victim has printed last."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "110")
    program = ("train.py", "--config", "configs/base.yaml", "--name", "a")
    hosts = tuple(f"gpu{number:02d}" for number in range(9))
    running = record.lock(str(made(1, age_s=9e5, program=program, hosts=hosts)))
    for number, status in ((2, 1), (3, 0)):
        folder = str(made(number, age_s=5 - number))
        OutputFile(folder).write(b"[0]     @ 0x7f start_thread\n")
        record.write_end(
            folder, JobEnd(status, "rank 1 failed: ValueError: bad batch", time.time())
        )
    made(4)
    made(5, host="elsewhere")
    assert list_jobs(as_json=False) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows] == ["running", "ended", "ended", "lost", "unknown"]
    assert max(map(len, rows)) <= 110
    shown = dict(zip("running failed fine lost unknown".split(), rows, strict=True))
    assert "  rank 1 failed: ValueError" in shown["failed"]
    assert shown["fine"].endswith("  @ 0x7f start_thread")
    assert "  its launcher was killed" in shown["lost"]
    assert shown["unknown"].endswith("  its launcher is on elsewhere")
    os.close(running)


def test_table_columns_are_aligned() -> None:
    rows = [
        ["1", "running", "2", "a", "12:00", "x.py", "line"],
        ["2", "lost", "16", "b", "", "", ""],
    ]
    assert format_table(rows) == [
        "ID  STATE    RANKS  HOSTS  SINCE  PROGRAM  LAST LINE",
        "1   running  2      a      12:00  x.py     line",
        "2   lost     16     b",
    ]


@pytest.mark.parametrize("mode", [0o710, 0o750, 0o720, 0o701, 0o704])
def test_folder_that_any_other_user_can_open_is_refused(mode: int) -> None:
    folder = made(1)
    assert states() == {"01": "lost"}
    folder.parent.chmod(mode)
    with pytest.raises(LaunchError, match="is open to other users"):
        find_all_jobs()
    folder.parent.chmod(0o700)
