"""The Python API, with real ranks and without JAX."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from jobs import PROGRAMS, Jobs, eventually

import mcjax_launch
from mcjax_launch import Event, JobFailed, LaunchError, Line

WAITS = "echo ready; exec sleep 1000"


pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("in_this_process")]


def test_successful_job_has_a_complete_result(tmp_path: Path) -> None:
    script = "echo out {process_id}; echo err {process_id} $A >&2"
    result = mcjax_launch.launch("sh", "-c", script, processes=2, env={"A": 7})
    assert (result.exit_status, result.ok, result.root_cause) == (0, True, None)
    assert result.check() is result
    assert [rank.stdout for rank in result.ranks] == ["out 0\n", "out 1\n"]
    assert [rank.stderr for rank in result.ranks] == ["err 0 7\n", "err 1 7\n"]
    assert [rank.outcome for rank in result.ranks] == ["ended", "ended"]
    assert [rank.exit_status for rank in result.ranks] == [0, 0]
    for rank in result.ranks:
        assert rank.started_s is not None and rank.ended_s is not None
        assert 0 <= rank.started_s <= rank.ended_s <= result.seconds
    assert result.hosts == ("localhost",)


def test_a_program_and_its_arguments_may_be_a_list(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("import sys; print(sys.argv[1:], sys.executable)")
    result = mcjax_launch.launch([program, "a"], "b", 3, tmp_path)
    assert result.ranks[0].stdout == f"{['a', 'b', '3', str(tmp_path)]} {sys.executable}\n"


def test_hidden_lines_are_shown_by_a_keyword(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A caller has no command line to add -v to."""
    said = "E1120 10:33:26.586135   25953 agent.cc:90] Polled an error from coordination service"
    script = f"""
        if [ $JAX_PROCESS_ID = 1 ]; then until [ -e ready ]; do sleep 0.01; done; exit 3; fi
        trap 'echo "{said}" >&2; exit 0' TERM
        touch ready; while :; do sleep 0.01; done
    """
    for verbose in (False, True):
        mcjax_launch.launch(
            "sh", "-c", script, processes=2, chdir=tmp_path, verbose=verbose, echo=True
        )
        shown = capfd.readouterr().err
        assert (said in shown) is verbose
        assert ("hid 1 line of follow-on errors; verbose=True shows them\n" in shown) is not verbose
        (tmp_path / "ready").unlink()


def test_first_failing_rank_is_the_cause(capfd: pytest.CaptureFixture[str]) -> None:
    result = mcjax_launch.launch("sh", "-c", "exit $((7 * {process_id}))", processes=2)
    assert result.exit_status == 7 and not result.ok
    cause = result.root_cause
    assert cause is not None
    assert (cause.rank, cause.ranks, cause.message) == (1, (1,), "rank 1 failed: exit status 7")
    with pytest.raises(JobFailed, match="rank 1 failed: exit status 7") as raised:
        result.check()
    assert raised.value.result is result
    assert raised.value.status == 7
    assert isinstance(raised.value, LaunchError)
    assert capfd.readouterr() == ("", "")


def test_echo_prints_what_the_command_would(capsys: pytest.CaptureFixture[str]) -> None:
    mcjax_launch.launch("sh", "-c", "echo hi; echo ho >&2; exit 3", echo=True)
    out, err = capsys.readouterr()
    assert out == "[0] hi\n"
    assert err.startswith("[0] ho\nmcjax-launch: rank 0 failed: exit status 3\n")


def test_callbacks_get_lines_and_events() -> None:
    lines: list[Line] = []
    events: list[Event] = []
    script = "printf 'a\\nb {process_id}'; exit 3"
    mcjax_launch.launch(
        "sh", "-c", script, processes=1, on_line=lines.append, on_event=events.append
    )
    assert lines == [Line(0, "localhost", "stdout", text) for text in ("a", "b 0")]
    kinds = Counter(event.kind for event in events)
    assert kinds["started"] == kinds["ended"] == 1
    started = next(event for event in events if event.kind == "started")
    assert started.pid is not None and started.rank == 0
    assert [event.exit_status for event in events if event.kind == "ended"] == [3]
    assert "rank 0 failed: exit status 3" in [e.text for e in events if e.kind == "note"]


REFUSED: dict[str, Any] = {
    "timeout: 'x' is not a duration: write 90, 90s, 5m, 1h30m or 1d": {"timeout": "x"},
    "--hosts nosuch.txt: no such file": {"hosts": "nosuch.txt"},
    "hosts:1: slots=x is not a whole number of 1 or more": {"hosts": ["a slots=x"]},
    "--verify-spmd cannot be combined with --no-hook": {"verify_spmd": True, "no_hook": True},
    "--show 7: no such rank; the job has rank 0": {"show": [7]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_arguments_are_refused(message: str) -> None:
    with pytest.raises(LaunchError) as raised:
        mcjax_launch.launch("true", **REFUSED[message])
    assert (str(raised.value), raised.value.status) == (message, 2)


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("num_processes", "it is 'processes' here"),
        ("n", "it is 'processes' here"),
        ("timout", "did you mean 'timeout'"),
        ("pdb", "only the command has that"),
    ],
)
def test_unknown_keywords_get_a_hint(keyword: str, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        mcjax_launch.launch("true", **{keyword: 1})  # type: ignore[arg-type]


def test_stop_ends_a_job() -> None:
    lines: list[Line] = []
    ready = threading.Event()

    def on_line(line: Line) -> None:
        lines.append(line)
        ready.set()

    with mcjax_launch.start("sh", "-c", WAITS, on_line=on_line) as job:
        assert ready.wait(150)
        assert not job.done
        with pytest.raises(TimeoutError):
            job.wait(0)
        job.stop()
        result = job.wait(150)
    assert (result.exit_status, result.message) == (143, "stopped by SIGTERM")
    assert job.done and job.wait() is result
    job.stop()  # nothing happens


def test_the_end_of_the_block_stops_a_job() -> None:
    with mcjax_launch.start("sh", "-c", "trap '' TERM; sleep 1000", grace=0.1) as job:
        pass
    assert job.done and job.wait().exit_status == 143


def test_kill_ends_a_job_at_once() -> None:
    ready = threading.Event()
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    with mcjax_launch.start("sh", "-c", script, on_line=lambda line: ready.set()) as job:
        assert ready.wait(150)
        job.stop(now=True)
        assert job.wait(20).ranks[0].exit_status == 137


def test_signal_reaches_the_ranks() -> None:
    ready = threading.Event()
    script = "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.1; done"
    with mcjax_launch.start("sh", "-c", script, on_line=lambda line: ready.set()) as job:
        assert ready.wait(150)
        job.send_signal(signal.SIGUSR1)
        assert job.wait(150).ranks[0].stdout == "ready\ngot\n"


def test_exception_in_a_callback_ends_the_job() -> None:
    def on_line(line: Line) -> None:
        raise RuntimeError(line.text)

    with pytest.raises(RuntimeError, match="ready"):
        mcjax_launch.launch("sh", "-c", WAITS, on_line=on_line)


def test_jobs_in_several_threads_keep_their_output_apart() -> None:
    """Their output does not get mixed up, whatever its size."""
    script = "i=0; while [ $i -lt 3000 ]; do echo {job} $i; i=$((i + 1)); done"
    got: dict[int, list[str]] = {job: [] for job in range(4)}

    def launch_job(job: int) -> None:
        result = mcjax_launch.launch(
            "sh",
            "-c",
            script.replace("{job}", str(job)),
            processes=2,
            on_line=lambda line: got[job].append(line.text),
        )
        assert result.ok

    threads = [threading.Thread(target=launch_job, args=(job,)) for job in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job, lines in got.items():
        assert Counter(lines) == Counter({f"{job} {number}": 2 for number in range(3000)})


def test_launch_leaves_the_callers_state_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    before = {signum: signal.getsignal(signum) for signum in signal.valid_signals()}
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    streams = sys.stdout, sys.stderr
    child = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "exit 7")
    assert mcjax_launch.launch("true", processes=2).ok
    assert {signum: signal.getsignal(signum) for signum in signal.valid_signals()} == before
    assert signal.set_wakeup_fd(wakeup) == wakeup
    assert (sys.stdout, sys.stderr) == streams
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert capfd.readouterr() == ("", "")


def test_caller_may_ignore_sigchld() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert mcjax_launch.launch("true", processes=2).ok
    finally:
        signal.signal(signal.SIGCHLD, before)


PROGRAM = """
import os, signal, sys, mcjax_launch
def on_line(line):
    print(line.text, flush=True)
try:
    mcjax_launch.launch("sh", "-c", "trap 'echo got INT; exit 0' INT; echo ready; while :; do sleep 0.1; done", processes=2, on_line=on_line)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_keyboard_interrupt_ends_the_job(jobs: Jobs) -> None:
    running = jobs.start(launcher=[sys.executable, "-c", PROGRAM])
    running.read_until("ready", 2)
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert (ended.status, ended.stderr) == (0, "")
    assert sorted(ended.stdout.split("\n")) == [
        *("", "got INT", "got INT", "interrupted", "ready", "ready")
    ]


def test_interrupts_at_random_moments_leave_nothing(jobs: Jobs) -> None:
    program = PROGRAMS / "interrupted_jobs.py"
    ended = jobs.run(20, time.time_ns(), launcher=[sys.executable, str(program)], limit=300)
    assert ended.status == 0, ended.stderr


@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupt_during_the_start_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The caller does not know whether there is a thread that reads."""

    class Interrupted(threading.Thread):
        def start(self) -> None:
            if moment == "after":
                super().start()
            raise KeyboardInterrupt

    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        mcjax_launch.launch("sh", "-c", WAITS)


ENDS = {
    "": "returns",
    "sys.exit(3)": "exits",
    "os._exit(3)": "leaves",
    "os.kill(os.getpid(), 9)": "is killed",
    "raise ValueError": "raises",
}


@pytest.mark.parametrize("end", ENDS, ids=ENDS.values())
def test_program_that_ends_takes_its_jobs_with_it(jobs: Jobs, end: str) -> None:
    code = f"""
import os, sys, threading, mcjax_launch
ready = threading.Event()
job = mcjax_launch.start("sh", "-c", "trap '' TERM; echo ready; sleep 1000", on_line=lambda line: ready.set())
ready.wait()
{end}
"""
    before = time.monotonic()
    jobs.start(launcher=[sys.executable, "-c", code]).finish()
    assert time.monotonic() - before < 20


def test_a_fork_does_not_keep_a_job_alive(jobs: Jobs) -> None:
    """It inherits the pipes to the agents, whose end is how they know that the program is gone."""
    code = """
import os, threading, time, mcjax_launch
ready = threading.Event()
job = mcjax_launch.start("sh", "-c", "echo ready; sleep 1000", on_line=lambda line: ready.set())
ready.wait()
if os.fork() == 0:
    os.write(1, b"child pid %d\\n" % os.getpid())
    os.closerange(0, 3)
    time.sleep(1000)
os._exit(0)
"""
    running = jobs.start(launcher=[sys.executable, "-c", code])
    ended = running.finish()
    child = int(ended.stdout.split()[-1])
    try:
        assert ended.status == 0
        eventually(lambda: jobs.left() == [child])
    finally:
        os.kill(child, signal.SIGKILL)


def test_fork_cannot_use_jobs_of_its_parent(jobs: Jobs) -> None:
    code = """
import os, mcjax_launch
job = mcjax_launch.start("sleep", "0.5")
child = os.fork()
if child == 0:
    job.stop()
    try:
        job.wait(150)
    except mcjax_launch.LaunchError as error:
        print(error)
    print(mcjax_launch.launch("sh", "-c", "exit 3").message, flush=True)
    raise SystemExit
os.waitpid(child, 0)
print(job.wait().message)
"""
    quiet = ("-W", "ignore::DeprecationWarning")  # of Python 3.12, of any fork beside a thread
    ended = jobs.start(launcher=[sys.executable, *quiet, "-c", code]).finish()
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "the job belongs to the parent process, from which this process was forked",
        "rank 0 failed: exit status 3",
        "the rank exited with 0",
    ]


@pytest.mark.parametrize("closed", [(1, 2), (0, 1, 2), (2,)])
def test_caller_without_standard_descriptors_gets_its_result(
    jobs: Jobs, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    code = f"""
import os
for fd in {closed}:
    os.close(fd)
import mcjax_launch
lines = []
result = mcjax_launch.launch("sh", "-c", "echo hi; exit 3", processes=1, on_line=lines.append)
with open({str(tmp_path / "seen")!r}, "w") as file:
    print(result.exit_status, [line.text for line in lines], file=file)
"""
    ended = jobs.start(launcher=[sys.executable, "-c", code]).finish()
    assert ended.status == 0, ended.stderr
    assert (tmp_path / "seen").read_text() == "3 ['hi']\n"


# --- the launcher's process ---


def test_killed_launcher_raises_an_error() -> None:
    ready = threading.Event()
    with mcjax_launch.start("sh", "-c", WAITS, on_line=lambda line: ready.set()) as job:
        assert ready.wait(150)
        [launcher] = psutil.Process().children()
        launcher.kill()
        with pytest.raises(
            LaunchError, match=r"^mcjax-launch has ended: killed by SIGKILL$"
        ) as raised:
            job.wait(150)
    assert raised.value.status == 137


def test_ranks_have_no_variables_of_a_client(capfd: pytest.CaptureFixture[str]) -> None:
    script = "env | grep -c _MCJAX_LAUNCH_CLIENT; ls /proc/$$/fd"
    result = mcjax_launch.launch("sh", "-c", script, preload="none")
    assert result.ranks[0].stdout.split() == ["0", "0", "1", "2"]


def test_option_variables_are_ignored_by_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCJAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("MCJAX_TIMEOUT", "soon")
    assert len(mcjax_launch.launch("true").ranks) == 1


@pytest.mark.parametrize("call", [mcjax_launch.start, mcjax_launch.launch])
def test_error_known_at_once_is_raised_and_not_printed(
    call: Callable[..., object], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LaunchError, match="nosuch: not found") as raised:
        call("nosuch", echo=True)
    assert raised.value.status == 127
    assert capfd.readouterr() == ("", "")


def test_launcher_is_that_of_the_caller(jobs: Jobs, tmp_path: Path) -> None:
    """Whatever else Python would find under its name, or beside it under the names of others."""
    other = tmp_path / "other"
    (other / "mcjax_launch").mkdir(parents=True)
    (other / "mcjax_launch" / "__init__.py").write_text("raise ImportError('another one')")
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "mcjax_launch").symlink_to(Path(mcjax_launch.__file__).parent)
    (ours / "select.py").write_text("raise ImportError('not that of Python')")
    code = f"import select, sys; sys.path.insert(0, {str(ours)!r}); import mcjax_launch as m; m.launch('true')"
    ended = jobs.start(
        launcher=[sys.executable, "-c", code], env={"PYTHONPATH": str(other)}
    ).finish()
    assert (ended.status, ended.stderr) == (0, "")


def test_lines_with_invalid_bytes_are_decoded() -> None:
    lines: list[Line] = []
    mcjax_launch.launch("printf", r"\303\244\377\n\303", on_line=lines.append)
    assert [line.text for line in lines] == ["\xe4\ufffd", "\ufffd"]


def test_a_slow_callback_slows_the_ranks(tmp_path: Path) -> None:
    written = tmp_path / "written"
    script = f"""
import os
for number in range(200):
    os.write(1, b"x" * 65535 + b"\\n")
    with open("new", "w") as file:
        file.write(str(number))
    os.replace("new", {str(written)!r})
"""
    (tmp_path / "p.py").write_text(script)
    hold, held = threading.Event(), threading.Event()

    def on_line(line: Line) -> None:
        held.set()
        hold.wait(150)

    with mcjax_launch.start(tmp_path / "p.py", on_line=on_line, chdir=tmp_path) as job:
        try:
            assert held.wait(150)
            eventually(lambda: is_still(written))
            assert 0 < int(written.read_text()) < 150
        finally:
            hold.set()
        assert job.wait(150).ok


def is_still(path: Path) -> bool:
    """Whether a file does not change for a moment."""
    before = path.read_text() if path.exists() else ""
    time.sleep(0.5)
    return bool(before) and path.read_text() == before


def test_import_loads_only_what_is_needed() -> None:
    code = "import sys, mcjax_launch; print(*(m for m in sys.modules if m.startswith('mcjax')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = ("mcjax_launch", "mcjax_launch.wire")
    assert set(done.stdout.split()) == {*packages, "mcjax_launch.wire.version"}


def test_interrupting_user_is_told_of_working_keys_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-\\ is no key of ours here: it would end the calling program."""
    ready = threading.Event()
    script = "trap 'exit 0' INT; echo ready; while :; do sleep 0.1; done"
    with mcjax_launch.start("sh", "-c", script, echo=True, on_line=lambda line: ready.set()) as job:
        assert ready.wait(150)
        job.send_signal(signal.SIGINT)
        assert job.wait(150).exit_status == 130
    told = capsys.readouterr().err.splitlines()[0]
    assert (
        told
        == "mcjax-launch: SIGINT sent to the ranks: they have 5 s to exit; press again to kill them now"
    )
