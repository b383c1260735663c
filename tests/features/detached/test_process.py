"""Jobs that are started without a terminal, listed, returned to and stopped."""

import json
import os
import re
import signal
import stat
import subprocess
from pathlib import Path

import psutil
import pytest
from detached import DetachedJobs
from jobs import LIMIT_S, Jobs, eventually, shell_script
from remote import FAKE_SSH


def test_detach_prints_the_id_once_all_ranks_run(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    job = detached.one(job_id)
    assert job["state"] == "running" and job["ranks"] == 2 and job["program"] == ["program.py"]
    assert job["hosts"] == ["localhost"] and job["exit_status"] is None
    assert os.getsid(job["launcher_pid"]) == job["launcher_pid"]
    assert psutil.Process(job["launcher_pid"]).terminal() is None
    (tmp_path / "end").write_text("0")
    assert detached.attach(job_id).status == 0


def test_attach_shows_a_job_also_with_options_that_come_too_late(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    job_id = detached.program(tmp_path, 3, ranks=1)
    detached.await_line(job_id, "[0] rank 0 line 2")
    (tmp_path / "end").write_text("0")
    ended = detached.jobs.run("--timestamps", "--collapse", "always", "--attach", job_id)
    assert ended.status == 0 and "[0] rank 0 line 2\n" in ended.stdout
    late = "--attach shows what the job has written: give --collapse and --timestamps to --detach"
    assert late in ended.report


def test_attach_shows_missed_lines_and_ends_with_the_jobs_status(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    job_id = detached.program(tmp_path, 100, ranks=1)
    detached.await_line(job_id, "[0] rank 0 line 99")
    visit = detached.jobs.start("--attach", job_id)
    shown = visit.read_until("rank 0 line 99")
    assert "line 0\n" in shown and "line 90\n" in shown  # a pipe gets all that is kept
    (tmp_path / "end").write_text("7")
    ended = visit.finish()
    assert ended.status == 7
    assert ended.stdout.count("ends") == 1
    assert ended.stdout.count("mcjax-launch: rank 0 failed: exit status 7") == 1
    assert ended.report == f"job {job_id} has ended with exit status 7"
    again = detached.attach(job_id)
    assert (again.status, again.stdout) == (7, ended.stdout)


def test_attach_ends_with_its_reader_and_the_job_goes_on(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    """As of `--attach | head`, although the job prints nothing more."""
    job_id = detached.program(tmp_path, 1, ranks=1)
    visit = detached.jobs.start("--attach", job_id)
    visit.read_until("rank 0 line 0")
    assert visit.process.stdout is not None
    visit.process.stdout.close()
    assert visit.process.wait(LIMIT_S) == 141
    assert detached.one(job_id)["state"] == "running"
    (tmp_path / "end").write_text("0")
    assert detached.attach(job_id).status == 0


def test_failed_start_is_reported_by_the_command_and_leaves_nothing(detached: DetachedJobs) -> None:
    ended = detached.jobs.run("--detach", "nowhere.py")
    assert ended.status == 127 and not ended.stdout
    assert "nowhere.py: no such file" in ended.report
    assert not detached.folder.exists()


def test_syntax_error_is_reported_at_once_and_leaves_nothing(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    for words, text, shown in (
        (["train.py"], "import jax\nx = (1,\n", "train.py:2: SyntaxError: '(' was never closed"),
        (["-m", "train"], "if:\n", "train.py:1: SyntaxError: invalid syntax"),
        (["python3", "train.py"], "if:\n", "train.py:1: SyntaxError: invalid syntax"),
    ):
        (tmp_path / "train.py").write_text(text)
        ended = detached.jobs.run("--detach", "-n", 2, *words, cwd=tmp_path)
        assert (ended.status, ended.stdout, ended.report) == (1, "", shown)
        assert detached.listed() == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_abandoned_start_leaves_nothing(detached: DetachedJobs, tmp_path: Path, name: str) -> None:
    via = shell_script(tmp_path / "client", f"touch {tmp_path}/asked; exec sleep 600")
    starting = detached.jobs.start("--detach", "--hosts", "a,b", "--via", f"{via} {{host}}", "true")
    eventually((tmp_path / "asked").exists)
    starting.signal(signal.Signals[name])
    ended = starting.finish()
    assert ended.status == (130 if name == "SIGINT" else -signal.SIGKILL) and not ended.stdout
    eventually(lambda: not list(detached.folder.iterdir()))
    eventually(lambda: not detached.jobs.left())


def test_jobs_are_listed_for_people_and_programs(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    (tmp_path / "end").write_text("3")
    assert detached.attach(job_id).status == 3
    listed = detached.jobs.run("--jobs").stdout.splitlines()
    assert listed[0].split() == [*"ID STATE RANKS HOSTS SINCE PROGRAM LAST LINE".split()]
    assert listed[1].split()[:5] == [job_id, "ended", "(3)", "2", "localhost"]
    assert listed[1].endswith("program.py  2 ranks failed: exit status 3")
    (line,) = detached.jobs.run("--jobs", "--json").stdout.splitlines()
    job = json.loads(line)
    assert job["id"] == job_id and job["state"] == "ended" and job["exit_status"] == 3
    assert job["last_line"].startswith("mcjax-launch: ") and job["hosts"] == ["localhost"]


def test_stdin_from_a_file_is_handed_on(detached: DetachedJobs, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("typed\n")
    with open(tmp_path / "input") as file:
        job_id = detached.start("--stdin", "cat", stdin=file.fileno())
    assert "[0] typed\n" in detached.attach(job_id).stdout


def test_shells_complete_job_ids(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    env = {"_MCJAX_LAUNCH_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    for option in ("--attach", "--stop", "--wait"):
        words = f"mcjax-launch {option} {job_id[:2]}"
        assert detached.jobs.run(env={**env, "COMP_WORDS": words}).stdout == f"plain,{job_id}\n"
    assert detached.jobs.run("--stop", job_id).status == 0


def test_ctrl_c_leaves_the_job_running_and_says_how_to_return(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    job_id = detached.program(tmp_path)
    visits = [detached.jobs.start("--attach", job_id) for _ in range(2)]
    for visit in visits:
        visit.read_until("rank 1 line 0")
    visits[0].signal(signal.SIGINT)
    left = visits[0].finish()
    assert left.status == 130
    assert left.report == (
        f"job {job_id} continues: mcjax-launch --attach {job_id} returns to it, "
        f"mcjax-launch --stop {job_id} ends it"
    )
    (tmp_path / "end").write_text("0")
    assert visits[1].finish().status == 0


def test_stop_ends_a_job_as_ctrl_c_would(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    visit = detached.jobs.start("--attach", job_id)
    visit.read_until("rank 1 line 0")
    stopped = detached.jobs.run("--stop", job_id)
    assert stopped.status == 0
    assert stopped.report.splitlines() == [
        f"job {job_id} is ending; --stop {job_id} again kills its ranks at once",
        f"job {job_id}: stopped by SIGINT",
    ]
    assert visit.finish().status == 130
    assert detached.one(job_id)["state"] == "ended"
    again = detached.jobs.run("--stop", job_id)
    assert again.status == 0 and "has already ended: stopped by SIGINT" in again.report


def test_a_second_stop_kills_the_ranks(detached: DetachedJobs, tmp_path: Path) -> None:
    program = tmp_path / "stubborn.py"
    program.write_text(
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: print('no', flush=True))\n"
        "print('ready', flush=True)\nwhile True: signal.pause()\n"
    )
    job_id = detached.start("--grace", "1h", program)
    detached.await_line(job_id, "[0] ready")
    first = detached.jobs.start("--stop", job_id)
    detached.await_line(job_id, "[0] no")
    assert detached.jobs.run("--stop", job_id).status == 0
    assert first.finish().status == 0
    assert detached.one(job_id)["exit_status"] == 130


def test_a_killed_launcher_leaves_a_lost_job_and_nothing_running(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    job_id = detached.program(tmp_path)
    visit = detached.jobs.start("--attach", job_id)
    visit.read_until("rank 1 line 0")
    os.kill(detached.one(job_id)["launcher_pid"], signal.SIGKILL)
    ended = visit.finish()
    assert ended.status == 255
    assert re.fullmatch(
        f"job {job_id} is lost: its launcher was killed, or this machine was restarted",
        ended.report,
    )
    eventually(lambda: not detached.jobs.left())
    assert detached.one(job_id)["state"] == "lost"
    stopped = detached.jobs.run("--stop", job_id)
    assert stopped.status == 0 and "its launcher was killed" in stopped.report


def test_wait_prints_the_ended_job_and_has_its_status(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    job_id = detached.program(tmp_path)
    # The limit of jobs, from the environment, is none of the wait.
    waiting = detached.jobs.start("--wait", job_id[:5], env={"MCJAX_TIMEOUT": "0.01"})
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.process.wait(1)
    (tmp_path / "end").write_text("7")
    ended = waiting.finish()
    assert (ended.status, ended.stderr) == (7, "")
    assert ended.stdout == f"{json.dumps(detached.one(job_id))}\n"
    assert detached.one(job_id)["state"] == "ended"
    again = detached.jobs.run("--wait", job_id)
    assert (again.status, again.stdout, again.stderr) == (7, ended.stdout, "")


def test_wait_is_over_at_its_limit_and_the_job_goes_on(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    job_id = detached.program(tmp_path)
    ended = detached.jobs.run("--wait", job_id, "--timeout", "0.1")
    assert (ended.status, ended.stderr) == (124, "")
    shown = json.loads(ended.stdout)
    assert (shown["id"], shown["state"], shown["exit_status"]) == (job_id, "running", None)
    (tmp_path / "end").write_text("0")
    assert detached.jobs.run("--wait", job_id).status == 0


def test_wait_for_a_killed_launcher_is_over(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    waiting = detached.jobs.start("--wait", job_id)
    os.kill(detached.one(job_id)["launcher_pid"], signal.SIGKILL)
    ended = waiting.finish()
    shown = json.loads(ended.stdout)
    assert (ended.status, shown["state"], shown["exit_status"]) == (255, "lost", 255)
    eventually(lambda: not detached.jobs.left())


def test_job_folder_is_private(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    folder = detached.folder / job_id
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    for path in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_parents_of_the_state_folder_are_private_if_they_are_made(
    jobs: Jobs, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        env = {"XDG_STATE_HOME": "", "HOME": str(tmp_path)}
        assert jobs.run("--detach", "true", env=env).status == 0
    finally:
        os.umask(before)
    for path in (tmp_path / ".local", tmp_path / ".local" / "state"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_state_folder_that_other_users_can_rename_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    state = tmp_path / "everybodys" / "state"
    (state / "mcjax-launch" / "jobs").mkdir(parents=True)
    state.parent.chmod(0o777)
    for args in (["--detach", "true"], ["--jobs"], ["--attach"]):
        ended = jobs.run(*args, env={"XDG_STATE_HOME": str(state)})
        assert ended.status == 2
        assert f"other users can rename what is in {state.parent}" in ended.report
    assert not list((state / "mcjax-launch" / "jobs").iterdir())


@pytest.mark.parametrize("kind", ["open", "link"])
def test_folders_of_another_user_are_refused(jobs: Jobs, tmp_path: Path, kind: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    other = tmp_path / "other"
    (other / "jobs").mkdir(0o700, parents=True)
    other.chmod(0o700)
    if kind == "link":
        (state / "mcjax-launch").symlink_to(other)
    else:
        (state / "mcjax-launch" / "jobs").mkdir(0o700, parents=True)
        (state / "mcjax-launch").chmod(0o755)
    for args in (["--detach", "true"], ["--jobs"], ["--attach"]):
        ended = jobs.run(*args, env={"XDG_STATE_HOME": str(state)})
        assert ended.status == 2
        assert ("a link" if kind == "link" else "chmod 700") in ended.report
    assert not list((other / "jobs").iterdir())


def test_ids_may_be_shortened_and_left_out(detached: DetachedJobs, tmp_path: Path) -> None:
    job_id = detached.program(tmp_path)
    (tmp_path / "end").write_text("0")
    short = detached.attach(job_id[:4], "--quiet")
    assert (short.status, short.stderr) == (0, "")
    assert sorted(short.stdout.splitlines()) == [
        *("[0] ends", "[0] rank 0 line 0", "[1] ends", "[1] rank 1 line 0")
    ]
    latest = detached.attach()
    assert latest.report.splitlines()[0] == f"job {job_id}, ended: program.py"


def test_id_is_the_same_everywhere_and_child_launchers_stay_attached(
    detached: DetachedJobs, tmp_path: Path
) -> None:
    report, events = tmp_path / "run.json", tmp_path / "events.jsonl"
    script = "echo $MCJAX_JOB_ID '<'$MCJAX_DETACH$_MCJAX_LAUNCH_DETACHED'>'"
    ended = detached.jobs.run(
        *("--report", report, "--events", events, "sh", "-c", script), env={"MCJAX_DETACH": "1"}
    )
    job_id = ended.stdout.strip()
    shown = detached.attach(job_id)
    assert f"[0] {job_id} <>\n" in shown.stdout
    assert json.loads(report.read_text())["attempts"][0]["job_id"] == job_id
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert lines[0]["job_id"] == job_id and lines[-1]["event"] == "summary"


RESTARTED = """
import os, sys, time
from pathlib import Path
attempt = os.environ["MCJAX_RESTART"]
for number in range(20_000):
    print(f"attempt {attempt} line {number} {'x' * 60}")
sys.stdout.flush()
Path(f"wrote {attempt}").touch()
while not Path(f"end {attempt}").exists():
    time.sleep(0.02)
sys.exit(attempt == "0")
"""


def test_a_slow_reader_sees_a_restarted_job_whole(detached: DetachedJobs, tmp_path: Path) -> None:
    """Nothing is missing, nothing comes twice, and the command ends with the job."""
    (tmp_path / "program.py").write_text(RESTARTED)
    job_id = detached.start("--max-restarts", 1, "program.py", cwd=tmp_path)
    eventually((tmp_path / "wrote 0").exists)
    visit = detached.jobs.start("--attach", job_id)  # its pipe is full from here on
    (tmp_path / "end 0").touch()
    eventually((tmp_path / "wrote 1").exists)
    late = detached.jobs.start("--attach", job_id)
    (tmp_path / "end 1").touch()
    eventually(lambda: detached.one(job_id)["state"] == "ended")
    for ended in (visit.finish(), late.finish()):
        assert ended.status == 0
        lines = [line for line in ended.stdout.splitlines() if line.startswith("[0] ")]
        assert [line.split(" x", 1)[0] for line in lines] == [
            f"[0] attempt {attempt} line {number}"
            for attempt in range(2)
            for number in range(20_000)
        ]
        assert "mcjax-launch: restarting in " in ended.stdout


def test_detach_returns_when_the_last_rank_runs(detached: DetachedJobs, tmp_path: Path) -> None:
    """Rank 1 is on a host that takes long to import the preloaded module."""
    for host in ("a", "b"):
        (tmp_path / host).mkdir()
    (tmp_path / "a" / "go").touch()
    (tmp_path / "slow.py").write_text(
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    )
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{host} slots=1 chdir={tmp_path / host}\n" for host in "ab"))
    program = tmp_path / "program.py"
    program.write_text("import slow\nopen('runs', 'w').close()\n")
    starting = detached.jobs.start(
        *("--detach", "--hosts", hosts, "--via", FAKE_SSH, "--preload", "slow", program)
    )
    eventually((tmp_path / "a" / "runs").exists)
    assert starting.process.poll() is None
    (tmp_path / "b" / "go").touch()
    ended = starting.finish()
    assert ended.status == 0, ended.stderr
    assert detached.attach(ended.stdout.strip()).status == 0


def test_hints_after_the_end_are_kept(detached: DetachedJobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys\n\ndef main():\n    jax.distributed.initialize()\n\nprint(sys.argv[1])\n"
    )
    ended = detached.jobs.run("--detach", "program.py", cwd=tmp_path)
    shown = detached.attach(ended.stdout.strip())
    assert shown.status == 1 and "mcjax-launch: hint: " in shown.stdout


def test_breakpoint_of_a_detached_job_is_passed(detached: DetachedJobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import pdb\nfor step in range(3):\n    breakpoint()\n    print('step', step, flush=True)\n"
        "pdb.set_trace()\npdb.run('step = 9')\nprint('after', flush=True)\n"
    )
    shown = detached.attach(detached.start("program.py", cwd=tmp_path))
    assert shown.status == 0, shown.stdout
    own = [line for line in shown.stdout.splitlines() if line.startswith("mcjax-launch: ")]
    assert own[0] == (
        "mcjax-launch: breakpoint at program.py:3 passed: a job of --detach has no terminal; start "
        "it as -m debugpy --listen 'localhost:567{process_id}' --wait-for-client PROGRAM"
    )
    assert "program.py:5 passed" in own[1]
    ranks = [line for line in shown.stdout.splitlines() if line.startswith("[0] ")]
    assert ranks[:3] == ["[0] step 0", "[0] step 1", "[0] step 2"]
    assert ranks[-1] == "[0] after"
