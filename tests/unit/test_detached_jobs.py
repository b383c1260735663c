"""The folders of detached jobs: how each job is, which are kept, and which could be another user's."""

import fcntl
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mcjax_launch.cli.stopping import stop

from mcjax_launch.cli import waiting
from mcjax_launch.cli.listing import collect_fields, format_table, list_jobs
from mcjax_launch.detached import address, output_files
from mcjax_launch.detached.folders import iterate_job_folders, make_job_folder
from mcjax_launch.detached.jobs import find, find_all_jobs, find_latest, wait_until_settled
from mcjax_launch.detached.record import Description, StateFile, identify_machine, write_description
from mcjax_launch.detached.standby import Standby
from mcjax_launch.errors import LaunchError
from mcjax_launch.machine.loop import Loop

DAY_S = 86400.0


@pytest.fixture(autouse=True)
def _state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def made(number: int, *, age_s: float = 0.0, **changes: object) -> Path:
    """A job's folder, of a launcher that is gone."""
    folder = make_job_folder(f"{number:08x}")
    host, boot = identify_machine()
    since = time.time() - age_s
    job = Description(f"{number:08x}", ("train.py",), host, boot, 1, 2, ("localhost",), since)
    write_description(folder, job.copy_with(**changes))
    return Path(folder)


def ended(folder: Path, status: int = 0, age_s: float = 0.0) -> None:
    """Write how the job has ended, so long ago."""
    file = StateFile(str(folder))
    file.end(status, "both ranks exited with 0")
    file.change(at=time.time() - age_s)
    file.close()


def states() -> dict[str, str]:
    return {job.id[-2:]: job.state for job in find_all_jobs()}


def test_folder_that_can_hold_no_socket_is_refused() -> None:
    folder = made(1)
    (folder / "socket").touch()
    loop = Loop()
    with pytest.raises(LaunchError, match=f"^--detach: no socket can be made in {folder}: Addr"):
        Standby("00000001", loop, lambda: None)
    loop.close()


def test_state_of_each_job_is_found() -> None:
    locked = StateFile(str(made(1)))
    ended(made(2))
    StateFile(str(made(3))).close()
    made(4)
    assert states() == {"01": "running", "02": "ended", "03": "lost", "04": "lost"}
    assert [job.exit_status for job in find_all_jobs()] == [None, 0, 255, 255]
    assert find("00000003").end == "its launcher was killed, and nothing of the job is left"
    locked.close()


def test_commands_that_ask_at_once_do_not_take_each_other_for_the_launcher() -> None:
    folder = made(1)
    StateFile(str(folder)).close()
    with (folder / "state").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert states() == {"01": "lost"}


def test_end_of_a_killed_launcher_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections are closed a moment before its lock is released."""
    file = StateFile(str(made(1)))
    (job,) = find_all_jobs()
    monkeypatch.setattr(time, "sleep", lambda seconds: file.close())
    assert wait_until_settled(job).state == "lost"


def test_folder_of_a_job_that_starts_slowly_is_kept() -> None:
    """It has no description yet, however long its hosts take; that of a killed launcher goes."""
    slow, killed = (Path(make_job_folder(f"{number:08x}")) for number in (1, 2))
    starting = StateFile(str(slow))
    StateFile(str(killed)).close()
    for folder in (slow, killed):
        os.utime(folder, (time.time() - DAY_S,) * 2)
    assert find_all_jobs() == []
    assert (slow.exists(), killed.exists()) == (True, False)
    starting.close()


def test_stop_reaches_a_launcher_that_still_writes_events_of_an_ended_job() -> None:
    file = StateFile(str(made(1)))
    file.end(0, "both ranks exited with 0")
    listener = address.listen(find_all_jobs()[0].folder)
    listener.settimeout(20)
    sent: list[bytes] = []

    def launcher() -> None:
        connection, _ = listener.accept()
        sent.append(connection.recv(4096))
        connection.close()

    thread = threading.Thread(target=launcher)
    thread.start()
    said: list[str] = []
    assert stop("00000001", said.append) == 0
    thread.join()
    listener.close()
    file.close()
    assert sent and "waits no longer for the reader of --events" in said[0]


def test_reboot_loses_detached_jobs() -> None:
    made(1, boot="another")
    (job,) = find_all_jobs()
    assert job.state == "lost"
    assert job.end == "this machine was restarted while the job ran, and nothing of the job is left"


def test_state_of_a_job_on_another_machine_is_its_last_record() -> None:
    made(1, host="elsewhere")
    ended(made(2, host="elsewhere"), 3)
    assert states() == {"01": "running", "02": "ended"}
    assert collect_fields(find("00000001"))["launcher_host"] == "elsewhere"


def test_a_job_of_another_machine_is_neither_the_latest_nor_kept_for_ever() -> None:
    made(1, age_s=8 * DAY_S, host="elsewhere")
    made(2, age_s=6 * DAY_S, host="elsewhere")
    ended(made(3, age_s=6 * DAY_S))
    assert find_latest().id == "00000003"
    assert states() == {"02": "running", "03": "ended"}


def test_ended_jobs_are_kept_for_a_week_up_to_twenty() -> None:
    running = StateFile(str(made(0, age_s=30 * DAY_S)))
    ended(made(1, age_s=9 * DAY_S), age_s=8 * DAY_S)
    ended(made(2, age_s=9 * DAY_S), age_s=6 * DAY_S)
    assert states() == {"00": "running", "02": "ended"}
    for number in range(3, 25):
        ended(made(number, age_s=100 - number), age_s=100 - number)
    kept = sorted(states())
    assert kept[0] == "00" and kept[1:] == [f"{number:02x}" for number in range(5, 25)]
    assert sorted(folder[-2:] for folder in iterate_job_folders()) == kept
    running.close()


def test_failures_are_kept_for_a_month_up_to_twenty_beside_successes() -> None:
    for number, (status, days) in enumerate([(1, 31), (1, 29), (137, 8), (0, 8), (0, 6)]):
        ended(made(number, age_s=32 * DAY_S), status, age_s=days * DAY_S)
    assert sorted(states()) == ["01", "02", "04"]
    for number in range(5, 28):
        ended(made(number, age_s=100 - number), age_s=100 - number)
    assert sorted(states()) == ["01", "02", *(f"{number:02x}" for number in range(8, 28))]


def test_abandoned_folder_is_removed_later() -> None:
    folder = make_job_folder("00000001")
    assert states() == {} and os.path.isdir(folder)
    os.utime(folder, (time.time() - 7200,) * 2)
    assert states() == {} and not os.path.isdir(folder)


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


def test_long_message_keeps_the_state_readable() -> None:
    file = StateFile(str(made(1)))
    file.end(1, "\u20ac" * 10_000)
    file.change(full=True)
    file.close()
    (job,) = find_all_jobs()
    assert (job.state, job.exit_status, job.recorded.full) == ("ended", 1, True)
    assert os.stat(f"{job.folder}/state").st_size == 4096


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
    with pytest.raises(LaunchError, match="no detached job: mcjax-launch --detach"):
        find_latest()
    ended(made(0xAA, age_s=50))
    first = StateFile(str(made(0xAB, age_s=40)))
    ended(made(0xB0, age_s=30))
    assert find_latest().id == "000000ab"  # the only one that runs
    second = StateFile(str(made(0xB1, age_s=20)))
    assert find_latest().id == "000000b1"
    assert find("000000b0").id == "000000b0"
    with pytest.raises(
        LaunchError, match="0000: several job ids begin with that: 000000aa, 000000ab"
    ):
        find("0000")
    with pytest.raises(LaunchError, match="ff: no such detached job; there are 000000aa, "):
        find("ff")
    first.close()
    second.close()


def test_table_says_what_matters_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why a job has failed, and not what a victim has printed last; that the disk is full."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "110")
    program = ("train.py", "--config", "configs/base.yaml", "--name", "a")
    hosts = tuple(f"gpu{number:02d}" for number in range(9))
    running = StateFile(str(made(1, age_s=9e5, program=program, hosts=hosts)))
    running.change(full=True)
    for number, status in ((2, 1), (3, 0)):
        folder = made(number, age_s=5 - number)
        path = Path(output_files.get_file_path(str(folder), 1))
        path.write_text("[0]     @ 0x7f start_thread\n")
        file = StateFile(str(folder))
        file.end(status, "rank 1 failed: ValueError: bad batch")
        file.close()
    made(4)
    made(5, host="elsewhere")
    assert list_jobs(as_json=False) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows] == ["running", "ended", "ended", "lost", "unknown"]
    assert max(map(len, rows)) <= 110
    shown = dict(zip("running failed fine lost unknown".split(), rows, strict=True))
    assert "  the disk is full" in shown["running"]
    assert "  rank 1 failed: ValueError" in shown["failed"]
    assert shown["fine"].endswith("  @ 0x7f start_thread")
    assert "  its launcher was killed" in shown["lost"]
    assert shown["unknown"].endswith("  its launcher is on elsewhere")
    running.close()


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


def test_full_disk_at_the_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        StateFile(str(folder))


@pytest.mark.parametrize("mode", [0o710, 0o750, 0o720, 0o701, 0o704])
def test_folder_that_any_other_user_can_open_is_refused(mode: int) -> None:
    folder = made(1)
    assert states() == {"01": "lost"}
    folder.parent.chmod(mode)
    with pytest.raises(LaunchError, match="is open to other users"):
        find_all_jobs()
    folder.parent.chmod(0o700)


# --- waiting ---


def test_wait_prints_the_job_as_it_is_at_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateFile(str(made(1)))

    def wait_for_end(limit_s: float) -> bool:
        state.change(full=True)
        return False

    launcher = SimpleNamespace(wait_for_end=wait_for_end, close=lambda: None)
    monkeypatch.setattr(waiting, "open_connection", lambda job, why: launcher)
    assert waiting.wait("00000001", 0.1) == 124
    assert json.loads(capsys.readouterr().out)["disk_full"]
    state.close()
