"""The record of real runs, and where it cannot be written."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import Jobs
from records import JOB, read

from mcjax_launch import __version__
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.report import report_file
from mcjax_launch.journal.attempt import JobOutcome

BURN = """
import time
block = bytearray(64 << 20)
for at in range(0, len(block), 4096): block[at] = 1
while time.process_time() < 1.2: pass
print("done")
"""


def test_report_of_a_successful_job_is_complete(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    done = jobs.run("-n", 2, "-x", "TOKEN=secret", "--report", path, sys.executable, "-c", BURN)
    assert (done.status, done.report) == (0, f"report: {path}")
    found = read(path)
    assert found["launcher_version"] == __version__
    assert (found["exit_status"], found["restarts"]) == (0, 0)
    assert found["words"] == "both ranks exited with 0"
    assert found["program"] == [sys.executable, "-c", BURN]
    assert found["command"][-4:] == ["--", *found["program"]]
    assert "TOKEN=..." in found["command"]
    assert 1 < found["seconds"] < done.seconds
    (attempt,) = found["attempts"]
    assert attempt["cause"]["kind"] == "none"
    assert attempt["hosts"] == ["localhost"]
    for rank in attempt["ranks"]:
        times = [rank[name] for name in ("started_s", "first_output_s", "ended_s")]
        assert times == sorted(times)
        assert rank["last_lines"] == {"stdout": ["done"], "stderr": []}
        assert 1.2 <= rank["cpu_s"] < 3
        assert rank["peak_kib"] > 64 << 10
        # Not the last: it may be of a process that has let go of its memory, and not ended yet.
        at, cpu_s, rss_kib = max(rank["samples"], key=lambda sample: sample[2])
        assert rank["started_s"] < at < rank["ended_s"]
        assert 0 < cpu_s <= rank["cpu_s"]
        assert 64 << 10 < rss_kib <= rank["peak_kib"]


def test_report_tells_which_code_ran(jobs: Jobs, tmp_path: Path) -> None:
    """Also of a module, and of one behind PYTHONPATH."""
    (tmp_path / "elsewhere").mkdir()
    for name in ("train.py", "elsewhere/other.py"):
        (tmp_path / name).write_text("x = 1\n")
    digest = hashlib.sha256(b"x = 1\n").hexdigest()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for words in (["train.py"], ["-m", "train"], ["-m", "other"], [sys.executable, "train.py"]):
        env = {"PYTHONPATH": "elsewhere"}
        ended = jobs.run("-n", 2, "--report", "out/r.json", *words, cwd=tmp_path, env=env)
        assert ended.status == 0, ended.stderr
        record = read(tmp_path / "out/r.json")
        assert record["attempts"][0]["program_sha256"] == {digest: ["localhost"]}
        assert record["checkout"] == {"folder": str(tmp_path), "commit": None, "clean": True}
    jobs.run("--report", "out/r.json", "true", cwd=tmp_path)
    assert read(tmp_path / "out/r.json")["attempts"][0]["program_sha256"] == {}


def test_report_has_no_values_of_variables(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("KEY=secret\n")
    job = (
        "-v",
        "--env-file",
        "keys.env",
        "-x",
        "TOKE?",
        "-x",
        "OTHER=secret",
        "--report",
        "r.json",
    )
    program = ("sh", "-c", 'test "$KEY$TOKEN$OTHER" = secretsecretsecret')
    ended = jobs.run(*job, *program, cwd=tmp_path, env={"TOKEN": "secret"})
    assert ended.status == 0, ended.stderr
    text = (tmp_path / "r.json").read_text()
    assert "keys.env" in text and "TOKE?" in text
    assert "secret" not in text.replace("secretsecretsecret", "") + ended.stderr


def test_the_paths_are_shown_at_the_end(jobs: Jobs, tmp_path: Path) -> None:
    path, logs = tmp_path / "run.json", tmp_path / "logs"
    options = ["--report", "run.json", "--log-dir", "logs"]
    failed = jobs.run(*options, "bash", "-c", "exit 3", cwd=tmp_path)
    assert failed.report.splitlines()[-2:] == [f"logs: {logs}", f"report: {path}"]
    assert jobs.run(*options, "true", cwd=tmp_path).report == f"logs: {logs}, report: {path}"
    assert jobs.run("-q", *options, "true", cwd=tmp_path).stderr == ""


def test_placeholders_in_the_report_path_are_filled_in(jobs: Jobs, tmp_path: Path) -> None:
    done = jobs.run("-n", 2, "--report", "{job_id}/run-{job_id}-{num_processes}.json", "true", cwd=tmp_path)  # fmt: skip
    assert done.status == 0
    (folder,) = tmp_path.iterdir()
    path = folder / f"run-{folder.name}-2.json"
    found = read(path)
    assert found["attempts"][0]["job_id"] == folder.name
    assert found["report_path"] == str(path)
    assert done.report == f"report: {path}"


def test_report_of_a_job_that_did_not_start_is_written(jobs: Jobs, tmp_path: Path) -> None:
    done = jobs.run("--report", "run-{job_id}.json", "--coordinator", "10.9.8.7:1", "true", cwd=tmp_path)  # fmt: skip
    assert done.status == 2
    assert read(tmp_path / "run-not-started.json")["exit_status"] == 2


def test_report_folder_is_made(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "run.json"
    assert jobs.run("--dry-run", "--report", path, "true").status == 0
    assert not list(tmp_path.iterdir())
    assert jobs.run("--report", path, "true").status == 0
    assert read(path)["exit_status"] == 0


def test_report_holds_a_failure(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    wait = f"until test -e {tmp_path}/0; do sleep 0.01; done"
    program = f"echo out; echo err >&2; test $JAX_PROCESS_ID = 0 || {{ {wait}; kill -SEGV $$; }}; touch {tmp_path}/0; exec sleep 100"
    done = jobs.run("-n", 2, "--report", path, "bash", "-c", program)
    assert done.status == 139
    found = read(path)
    (attempt,) = found["attempts"]
    assert found["exit_status"] == attempt["exit_status"] == 139
    cause = attempt["cause"]
    assert (cause["kind"], cause["rank"], cause["host"]) == ("rank", 1, "localhost")
    assert cause["words"] == found["words"] == done.report.splitlines()[0]
    quote = cause["report"][1:3]  # the rank has said it, just before
    assert quote == ["the last lines of its stderr:", "  | err"]
    assert [cause["report"][0], *cause["report"][3:]] == done.report.splitlines()[:-1]
    victim, culprit = attempt["ranks"]
    assert culprit["signal"] == "SIGSEGV"
    assert culprit["signals_sent"] == []
    assert culprit["failed_s"] == culprit["ended_s"] == cause["at_s"]
    assert victim["signals_sent"] == ["SIGTERM"]
    assert victim["last_lines"] == {"stdout": ["out"], "stderr": ["err"]}


def test_report_holds_all_attempts(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    program = "exit $((7 - 7 * MCJAX_RESTART))"
    done = jobs.run("-n", 2, "--max-restarts", 1, "--report", path, "bash", "-c", program)
    assert done.status == 0
    found = read(path)
    assert (found["restarts"], found["words"]) == (1, "both ranks exited with 0")
    first, second = found["attempts"]
    assert (first["restart"], second["restart"]) == (0, 1)
    assert (first["exit_status"], second["exit_status"]) == (7, 0)
    assert first["cause"]["kind"] == "rank"
    assert first["began_s"] + first["seconds"] + 1 <= second["began_s"]
    assert first["job_id"] != second["job_id"]


# --- where it cannot be written ---


def test_report_folder_replaced_by_a_file_is_an_error(jobs: Jobs, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    program = f"rmdir {folder}; touch {folder}; exit 3"
    done = jobs.run("--report", folder / "run.json", "bash", "-c", program)
    assert done.status == 3
    last = done.report.splitlines()[-1]
    assert last == f"--report {folder}/run.json: cannot be written: Not a directory"


def test_old_report_is_replaced_whole(jobs: Jobs, tmp_path: Path) -> None:
    path, link = tmp_path / "run.json", tmp_path / "link.json"
    path.write_text("old")
    link.symlink_to(path)
    assert jobs.run("--report", link, "true").status == 0
    assert link.is_symlink()
    assert read(path)["exit_status"] == 0
    assert sorted(os.listdir(tmp_path)) == ["link.json", "run.json"]


def test_an_internal_error_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    said: list[str] = []
    writer = report_file.ReportWriter(str(path), JOB, [], said.append, quiet=False)
    writer.on_job_outcome(JobOutcome(125, "internal error: ZeroDivisionError()"), time.monotonic())
    found = read(path)
    assert (found["exit_status"], found["attempts"]) == (125, [])
    assert "ZeroDivisionError" in found["words"]
    assert said == [f"report: {path}"]


def test_temporary_report_file_is_always_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that others write to, its name may lead to a file of the user's."""
    monkeypatch.setattr(os, "urandom", bytes)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (f".run.json.{os.getpid()}.new", ".mcjax-report-000000000000.new"):
        os.link(victim, tmp_path / name)
    with pytest.raises(LaunchError, match=r"run.json: cannot be written: File exists"):
        report_file.check_report(str(tmp_path / "run.json"))
    assert victim.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3
