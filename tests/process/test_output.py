"""What the ranks write and what the user sees of it."""

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import psutil
import pytest
from jobs import LAUNCHER, Jobs, at_once
from shown import check_whole


def python(program: str) -> tuple[str, str, str]:
    return sys.executable, "-c", program


def lines_of(rank: int, text: str) -> list[str]:
    mark = f"[{rank}] "
    return [line[len(mark) :] for line in text.split("\n") if line.startswith(mark)]


def test_streams_are_kept_apart_and_prefixed(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "bash", "-c", "echo out; echo err >&2")
    assert sorted(ended.stdout.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(ended.stderr.splitlines()) == ["[0] err", "[1] err"]


def test_prefixes_have_one_width(jobs: Jobs) -> None:
    ended = jobs.run("-n", 11, "echo", "x")
    assert sorted(ended.stdout.splitlines()) == sorted(f"[{n:2}] x" for n in range(11))


def test_no_prefix(jobs: Jobs) -> None:
    assert jobs.run("-n", 2, "--no-prefix", "echo", "x").out == b"x\nx\n"


def test_timestamps(jobs: Jobs) -> None:
    ended = jobs.run("-n", 1, "--timestamps", "echo", "x")
    clock, rest = ended.stdout.split(" ", 1)
    assert rest == "[0] x\n"
    time.strptime(clock.split(".")[0], "%H:%M:%S")


def test_show(jobs: Jobs, tmp_path: object) -> None:
    ended = jobs.run("-n", 4, "--show", "0,2-3", "--log-dir", tmp_path, "echo", "{process_id}")
    assert sorted(ended.stdout.splitlines()) == ["[0] 0", "[2] 2", "[3] 3"]
    with open(f"{tmp_path}/1.out") as log:
        assert log.read() == "1\n"


@pytest.mark.parametrize(
    ("env", "option", "coloured"),
    [
        ({}, "auto", False),
        ({"FORCE_COLOR": "1"}, "auto", True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        ({"NO_COLOR": "1"}, "always", True),
        ({"FORCE_COLOR": "1"}, "never", False),
    ],
)
def test_colour(jobs: Jobs, env: dict[str, str], option: str, coloured: bool) -> None:
    ended = jobs.run("-n", 1, "--color", option, "echo", "x", env=env)
    assert (b"\x1b[" in ended.out) == coloured


def test_missing_last_newline(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 2, *at_once("printf 'a\\nb'", tmp_path))
    assert sorted(ended.stdout.splitlines()) == ["[0] a", "[0] b", "[1] a", "[1] b"]
    assert ended.stdout.endswith("\n")


def test_any_bytes(jobs: Jobs, tmp_path: object) -> None:
    data = bytes(range(256)).replace(b"\n", b"") + b"\n" + b"\xff\xfe\x00\r\n"
    program = f"import os; os.write(1, {data!r})"
    ended = jobs.run("-n", 1, "--log-dir", tmp_path, *python(program))
    shown = data[:-1].replace(b"\r\x0e", b"\r[0] \x0e")  # the prefix is not overwritten
    assert ended.out == b"".join(b"[0] " + line + b"\n" for line in shown.split(b"\n"))
    with open(f"{tmp_path}/0.out", "rb") as log:
        assert log.read() == data


def test_lines_written_in_halves_are_not_torn(jobs: Jobs) -> None:
    program = """
import os, time
for n in range(30):
    os.write(1, b'first half %d ' % n); time.sleep(0.01); os.write(1, b'second half\\n')
"""
    ended = jobs.run("-n", 3, *python(program))
    for rank in range(3):
        assert lines_of(rank, ended.stdout) == [f"first half {n} second half" for n in range(30)]


def test_nothing_is_lost_or_reordered(jobs: Jobs, tmp_path: object) -> None:
    count = 20_000
    written = [str(n) for n in range(1, count + 1)]
    ended = jobs.run("-n", 4, "--log-dir", tmp_path, "bash", "-c", f"seq {count}; seq {count} >&2")
    for rank in range(4):
        for text, end in ((ended.stdout, "out"), (ended.stderr, "err")):
            check_whole(lines_of(rank, text), written)
            with open(f"{tmp_path}/{rank}.{end}") as log:
                assert log.read() == "".join(f"{n}\n" for n in written)


def test_burst_before_a_violent_death(jobs: Jobs) -> None:
    program = "import os; os.write(1, b'x' * 50000 + b'\\nlast\\n'); os.kill(os.getpid(), 9)"
    ended = jobs.run("-n", 1, *python(program))
    assert ended.status == 137
    assert lines_of(0, ended.stdout) == ["x" * 50000, "last"]


def test_a_prompt_is_shown_while_its_rank_waits(jobs: Jobs) -> None:
    program = "import time; print('Name? ', end='', flush=True); time.sleep(30)"
    running = jobs.start("-n", 1, *python(program))
    assert running.read_until("Name? ") == "[0] Name? "
    running.process.terminate()
    assert running.finish().out == b"[0] Name? \n"


def test_a_shown_prompt_and_other_ranks_lines(jobs: Jobs, tmp_path: Path) -> None:
    """What interrupts an unfinished line does not tear it: it is shown whole in the end."""
    for rank in "01":
        os.mkfifo(tmp_path / rank)
    program = """
import os
rank = os.environ['JAX_PROCESS_ID']
if rank == '0':
    print('loading', end='', flush=True)
open(rank).read()
print(' done' if rank == '0' else 'hello', flush=True)
"""
    running = jobs.start("-n", 2, *python(program), cwd=tmp_path)
    running.read_until("[0] loading")
    (tmp_path / "1").write_text("go on")
    running.read_until("hello\n")
    (tmp_path / "0").write_text("go on")
    ended = running.finish()
    assert ended.stdout.splitlines() == ["[0] loading", "[1] hello", "[0] loading done"]


def test_a_huge_line_in_pieces_and_bounded_memory(jobs: Jobs, tmp_path: object) -> None:
    size = 100_000_000
    program = f"import sys; [sys.stdout.write('x' * 1_000_000) for _ in range({size // 1_000_000})]"
    command = ["-n", 1, "--log-dir", tmp_path, *python(program)]
    running = jobs.start(*command, stdout=os.open(os.devnull, os.O_WRONLY))
    launcher = psutil.Process(running.process.pid)
    most = 0
    while running.process.poll() is None:
        try:
            most = max(most, launcher.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        select.select([], [], [], 0.005)
    assert running.finish().status == 0
    assert os.path.getsize(f"{tmp_path}/0.out") == size
    assert most < 100 << 20


def test_a_huge_line_is_marked_as_continued(jobs: Jobs) -> None:
    ended = jobs.run("-n", 1, *python("print('x' * 2_500_000)"))
    pieces = lines_of(0, ended.stdout)
    mark = " [mcjax-launch: line continues]"
    assert [piece.endswith(mark) for piece in pieces] == [True, True, False]
    assert "".join(piece.removesuffix(mark) for piece in pieces) == "x" * 2_500_000


def test_a_slow_reader_loses_nothing(jobs: Jobs) -> None:
    count = 200_000
    running = jobs.start("-n", 1, "seq", count)
    assert running.process.stdout is not None
    for _ in range(20):
        running.out += os.read(running.process.stdout.fileno(), 1000)
        time.sleep(0.01)
    ended = running.finish()
    assert lines_of(0, ended.stdout) == [str(n) for n in range(1, count + 1)]


def test_log_dir_placeholders(jobs: Jobs, tmp_path: object) -> None:
    ended = jobs.run("-n", 2, "--log-dir", f"{tmp_path}/{{process_id}}-of-{{num_processes}}", "pwd")
    assert ended.status == 0
    assert sorted(os.listdir(str(tmp_path))) == ["0-of-2", "1-of-2"]
    assert os.path.exists(f"{tmp_path}/1-of-2/1.out")


def test_log_dir_that_cannot_be_made(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--log-dir", "/dev/null/logs", "echo", "started")
    assert (ended.status, ended.out) == (2, b"")
    said = "--log-dir /dev/null/logs: /dev/null is not a directory; give another name"
    assert ended.report == said


def test_a_log_dir_that_is_a_file(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    ended = jobs.run("--log-dir", "train.py", "echo", "started", cwd=tmp_path)
    assert (ended.status, ended.out) == (2, b"")
    assert ended.report == "--log-dir train.py: not a directory; give another name"


def test_log_files_of_an_earlier_job_of_more_ranks(jobs: Jobs, tmp_path: Path) -> None:
    others = ["4711.out", "4711.err", "5.out", "6.out", "6.err", "07.out", "notes.out"]
    assert jobs.run("-n", 5, "--log-dir", tmp_path, "echo", "first").status == 0
    for name in others:
        (tmp_path / name).write_text("another's")
    assert jobs.run("-n", 2, "--log-dir", tmp_path, "echo", "second").status == 0
    own = [f"{rank}.{end}" for rank in range(2) for end in ("out", "err")]
    assert sorted(os.listdir(tmp_path)) == sorted(own + others)
    assert all((tmp_path / name).read_text() == "another's" for name in others)
    assert (tmp_path / "1.out").read_text() == "second\n"


def test_files_of_others_in_a_folder_that_never_was_for_logs(jobs: Jobs, tmp_path: Path) -> None:
    """An array of batch tasks may have written 1.out, 1.err and so on."""
    others = [f"{task}.{end}" for task in range(1, 4) for end in ("out", "err")]
    for name in others:
        (tmp_path / name).write_text("another's")
    assert jobs.run("-n", 1, "--log-dir", tmp_path, "echo", "first").status == 0
    assert jobs.run("-n", 1, "--log-dir", ".", "echo", "second", cwd=tmp_path).status == 0
    assert all((tmp_path / name).read_text() == "another's" for name in others)


def test_log_files_stay_where_a_job_is_started_again(jobs: Jobs, tmp_path: Path) -> None:
    options = ["-n", 2, "--max-restarts", 1, "--log-dir", tmp_path]
    # Rank 1 ends the first job once rank 0 has printed.
    program = """
echo $MCJAX_RESTART
test $JAX_PROCESS_ID = 1 || touch $0/2.out $0/2.err
until test -e $0/2.err; do sleep 0.01; done
exit $((1 - MCJAX_RESTART))
"""
    assert jobs.run(*options, "bash", "-c", program, tmp_path).status == 0
    assert sorted(os.listdir(tmp_path)) == [
        f"{n}.{end}" for n in range(3) for end in ("err", "out")
    ]
    assert (tmp_path / "0.out").read_text() == "0\n1\n"


FAILING_FIRST = """
cd {folder}
if test $JAX_PROCESS_ID = 1; then
    trap 'seq {more} >&2; exit' TERM
    touch ready
    while :; do sleep 0.05; done
fi
until test -e ready; do sleep 0.01; done
seq 100 >&2
exit 3
"""


@pytest.mark.parametrize("more", [10, 1000])
def test_tail_of_the_report_is_the_end_of_stderr(jobs: Jobs, tmp_path: Path, more: int) -> None:
    """It is not said twice in a row."""
    script = FAILING_FIRST.format(folder=tmp_path, more=more)
    ended = jobs.run("-n", 2, "--log-dir", tmp_path, "bash", "-c", script)
    assert "[0] 100\n" in ended.stderr
    assert ("  | 100" in ended.report) == (more == 1000)
    assert "  | 80\n" not in ended.report
    assert f"logs: {tmp_path}" in ended.report
    assert ended.stderr.rstrip().endswith(f"mcjax-launch: logs: {tmp_path}")


@pytest.mark.parametrize("shown", ["0", "1"])
def test_a_traceback_is_shown_once(jobs: Jobs, shown: str) -> None:
    """By the rank, where that can be seen, or by the summary."""
    program = "import os; os.environ['JAX_PROCESS_ID'] == '1' or 1 / 0"
    ended = jobs.run("-n", 2, "--show", shown, *python(program))
    assert ended.status == 1
    assert ended.stderr.count("Traceback") == 1
    assert ("[0] Traceback" in ended.stderr) == (shown == "0")
    assert "rank 0 failed: ZeroDivisionError: division by zero" in ended.report
    assert re.search("\nthe job ran for [a-z0-9. ]+ s$", ended.report)


@pytest.mark.parametrize(
    ("long_s", "quiet", "said"), [(60, [], ""), (0, [], "it"), (0, ["-q"], "")]
)
def test_a_good_end_of_a_long_job(jobs: Jobs, long_s: int, quiet: list[str], said: str) -> None:
    """It says how long it was; a short one says nothing."""
    code = (
        f"from mcjax_launch.kernel.launcher import launcher; launcher.LONG_S = {long_s}\n"
        "from mcjax_launch.__main__ import run; run()"
    )
    ended = jobs.run(*quiet, "true", launcher=[sys.executable, "-c", code])
    assert ended.status == 0
    assert bool(re.fullmatch("the job ran for [a-z0-9. ]+ s", ended.report)) == bool(said)
    assert said or not ended.err


class Terminal:
    """A pseudo-terminal with a launcher in it."""

    def __init__(self, jobs: Jobs, *args: object, shell: str = "") -> None:
        words = [*LAUNCHER, *map(str, args)]
        if shell:
            words = ["bash", "-c", shell, "-", *words]
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe(words[0], words, jobs.environment(TERM="xterm"))
        self.pid = pid

    def read(self) -> bytes:
        out = b""
        while True:
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return out


def test_progress_bars_on_a_terminal(jobs: Jobs) -> None:
    program = """
import time, tqdm
for _ in tqdm.tqdm(range(10), desc='epoch', mininterval=0): time.sleep(0.1)
print('trained')
"""
    terminal = Terminal(jobs, "-n", 2, "--color", "never", *python(program))
    shown = terminal.read().decode()
    assert terminal.status == 0
    for rank in range(2):
        assert f"[{rank}] epoch:  " in shown  # live
        assert shown.count(f"[{rank}] epoch: 100%") >= 1
        assert f"[{rank}] trained" in shown
    assert shown.count("\x1b[?7l") == shown.count("\x1b[?7h") > 0


@pytest.mark.parametrize(("control", "drawn"), [("wait $!", False), ("fg", True)])
def test_bars_are_drawn_in_the_foreground_only(jobs: Jobs, control: str, drawn: bool) -> None:
    program = """
import sys, time
for n in range(10): sys.stderr.write(f'\\rbar {n}'); sys.stderr.flush(); time.sleep(0.1)
print(' end', file=sys.stderr)
"""
    shell = f'set -m; "$@" & {control}'
    terminal = Terminal(jobs, "-n", 2, "--color", "never", *python(program), shell=shell)
    shown = terminal.read().decode()
    assert terminal.status == 0
    assert ("\x1b[?7l" in shown) == drawn
    for rank in range(2):
        assert f"[{rank}] bar 9 end\r\n" in shown


def test_interrupt_from_a_terminal_reaches_each_rank_once(jobs: Jobs) -> None:
    script = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    terminal = Terminal(jobs, "-n", 2, "bash", "-c", script)
    seen = b""
    while seen.count(b"ready") < 2:
        seen += os.read(terminal.fd, 65536)
    os.write(terminal.fd, b"\x03")
    seen += terminal.read()
    assert terminal.status == 130
    assert seen.count(b"caught") == 2


def test_a_traceback_that_only_begins_is_shown(jobs: Jobs) -> None:
    program = "printf 'hello\\nTraceback (most recent call last):' >&2"
    ended = jobs.run("-n", 1, "bash", "-c", program)
    assert ended.stderr == "[0] hello\n[0] Traceback (most recent call last):\n"
