"""What the ranks write and what the user sees of it."""

import os
import re
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from histories import STREAMS
from jobs import Jobs
from remote import FAKE_SSH
from screen import Screen
from terminal import COLUMNS, ROWS, Terminal

START = Callable[..., Terminal]


def python(program: str) -> tuple[str, str, str]:
    return sys.executable, "-c", program


def lines_of(rank: int, text: str) -> list[str]:
    mark = f"[{rank}] "
    return [line[len(mark) :] for line in text.split("\n") if line.startswith(mark)]


def test_timestamps_precede_lines(jobs: Jobs) -> None:
    ended = jobs.run("-n", 1, "--timestamps", "echo", "x")
    clock, rest = ended.stdout.split(" ", 1)
    assert rest == "[0] x\n"
    time.strptime(clock.split(".")[0], "%H:%M:%S")


def test_timestamps_precede_lines_and_unfinished_rows_on_a_terminal(at_terminal: START) -> None:
    script = "echo x; printf 'Name? '; sleep 1000"
    terminal = at_terminal("-n", 1, "--timestamps", "bash", "-c", script)
    terminal.until(re.compile(r"\d\d:\d\d:\d\d\.\d+ \[0\] x\r\n"))
    terminal.until(re.compile(r"\d\d:\d\d:\d\d\.\d+ \[0\] Name\?"))
    terminal.type("\x03")
    assert terminal.finish() == 130


def test_any_bytes_pass_through(jobs: Jobs, tmp_path: object) -> None:
    data = bytes(range(256)).replace(b"\n", b"") + b"\n" + b"\xff\xfe\x00\r\n"
    program = f"import os; os.write(1, {data!r})"
    ended = jobs.run("-n", 1, "--log-dir", tmp_path, *python(program))
    shown = data[:-1].replace(b"\r\x0e", b"\r[0] \x0e")  # the prefix is not overwritten
    assert ended.out == b"".join(b"[0] " + line + b"\n" for line in shown.split(b"\n"))
    with open(f"{tmp_path}/0.out", "rb") as log:
        assert log.read() == data


@pytest.mark.parametrize("status", [0, 3])
def test_a_gpus_end_is_in_log_files_alone(jobs: Jobs, tmp_path: Path, status: int) -> None:
    stream = STREAMS["a rank on a GPU ends after rank 0"]
    data = "".join(f"{line}\n" for line, kind in stream if kind).encode()
    write = f"os.write(2, {data[:300]!r}); os.write(2, {data[300:]!r})"
    program = f"import os, sys; {write}; sys.exit({status})"
    ended = jobs.run("-n", 2, "--log-dir", tmp_path, *python(program))
    assert ended.status == status
    assert lines_of(0, ended.stderr) == lines_of(1, ended.stderr) == []
    assert "hid " not in ended.report
    assert [(tmp_path / f"{rank}.err").read_bytes() for rank in range(2)] == [data] * 2


def test_output_just_before_a_kill_is_shown(jobs: Jobs) -> None:
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


# Rank 0 never ends its line; rank 1 prints in between. Each waits until the other can be seen.
PARTED = """
import os, sys, time
def print_after(name, text):
    while not os.path.exists(name): time.sleep(0.01)
    os.write(1, text)
if os.environ["JAX_PROCESS_ID"] == "0":
    os.write(1, b"tail")
    print_after("grow", b" grows")
else:
    print_after("between", b"between\\n")
while not os.path.exists("end"): time.sleep(0.01)
"""
SETTINGS: dict[str, list[object]] = {
    "a pipe": [],
    "no prefix": ["--no-prefix"],
    "timestamps": ["--timestamps"],
    "collapse": ["--collapse", "always"],
    "verbose": ["-v"],
    "two hosts": ["--hosts", "a,b", "--via", FAKE_SSH, "--python", sys.executable],
}


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_last_line_without_a_newline_is_shown_once(
    jobs: Jobs, tmp_path: Path, setting: str, grows: bool
) -> None:
    """Also if another rank has printed in between."""
    running = jobs.start("-n", 2, *SETTINGS[setting], *python(PARTED), cwd=tmp_path)
    running.read_until("tail")
    (tmp_path / "between").touch()
    running.read_until("between")
    if grows:
        (tmp_path / "grow").touch()
        running.read_until("grows")
    (tmp_path / "end").touch()
    (tmp_path / "grow").touch()
    shown = running.finish().stdout
    assert [shown.count(text) for text in ("tail", "between", "grows")] == [1, 1, 1]


@pytest.mark.parametrize("pause", ["", "sleep 0.5;"])
def test_output_without_a_prefix_ends_as_the_rank_ends_it(jobs: Jobs, pause: str) -> None:
    """As an archive on its way to a file, whether its last line was shown in part before or not."""
    ended = jobs.run("--no-prefix", "sh", "-c", rf"printf 'a\nb\0'; {pause} printf c")
    assert ended.out == b"a\nb\0c"


def test_a_last_line_without_a_newline_is_shown_once_on_a_terminal(
    at_terminal: START, tmp_path: Path
) -> None:
    terminal = at_terminal("-n", 2, "-C", tmp_path, *python(PARTED))
    terminal.until("tail")
    (tmp_path / "between").touch()
    terminal.until("between")
    (tmp_path / "grow").touch()
    (tmp_path / "end").touch()
    assert terminal.finish() == 0
    screen = Screen(COLUMNS, ROWS)
    screen.write(terminal.shown)
    assert sorted(row for row in screen.shown if "[" in row[:1]) == [
        "[0] tail grows",
        "[1] between",
    ]


def test_huge_line_is_passed_on_in_bounded_memory(jobs: Jobs, tmp_path: object) -> None:
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


def test_log_dir_placeholders_are_filled_in(jobs: Jobs, tmp_path: object) -> None:
    ended = jobs.run("-n", 2, "--log-dir", f"{tmp_path}/{{process_id}}-of-{{num_processes}}", "pwd")
    assert ended.status == 0
    assert sorted(os.listdir(str(tmp_path))) == ["0-of-2", "1-of-2"]
    assert os.path.exists(f"{tmp_path}/1-of-2/1.out")


def test_stale_log_files_of_higher_ranks_are_removed(jobs: Jobs, tmp_path: Path) -> None:
    others = ["4711.out", "4711.err", "5.out", "6.out", "6.err", "07.out", "notes.out"]
    assert jobs.run("-n", 5, "--log-dir", tmp_path, "echo", "first").status == 0
    for name in others:
        (tmp_path / name).write_text("another's")
    assert jobs.run("-n", 2, "--log-dir", tmp_path, "echo", "second").status == 0
    own = [f"{rank}.{end}" for rank in range(2) for end in ("out", "err")]
    assert sorted(os.listdir(tmp_path)) == sorted(own + others)
    assert all((tmp_path / name).read_text() == "another's" for name in others)
    assert (tmp_path / "1.out").read_text() == "second\n"


@pytest.mark.parametrize("colour", ["", "1"])
@pytest.mark.parametrize("shown", ["0", "1"])
def test_a_traceback_is_shown_once(jobs: Jobs, shown: str, colour: str) -> None:
    """By the rank, where that can be seen, or by the summary; in colours too."""
    program = "import os; os.environ['JAX_PROCESS_ID'] == '1' or 1 / 0"
    env = {"FORCE_COLOR": colour}  # Python's, from 3.13 on
    ended = jobs.run("-n", 2, "--color", "never", "--show", shown, *python(program), env=env)
    assert ended.status == 1
    assert ended.stderr.count("Traceback") == 1
    assert ("[0] Traceback" in ended.stderr) == (shown == "0")
    assert "rank 0 failed: ZeroDivisionError: division by zero" in ended.report
    assert re.search("\nthe job ran for [a-z0-9. ]+ s$", ended.report)


def test_a_long_job_reports_its_duration(jobs: Jobs) -> None:
    code = (
        "from mcjax_launch.launcher import conclusion; conclusion.LONG_S = 0\n"
        "from mcjax_launch.__main__ import run; run()"
    )
    ended = jobs.run("true", launcher=[sys.executable, "-c", code])
    assert re.fullmatch("the job ran for [a-z0-9. ]+ s", ended.report)


def test_progress_bars_are_drawn_on_a_terminal(at_terminal: START) -> None:
    program = """
import time, tqdm
for _ in tqdm.tqdm(range(10), desc='epoch', mininterval=0): time.sleep(0.1)
print('trained')
"""
    terminal = at_terminal("-n", 2, *python(program))
    assert terminal.finish() == 0
    shown = terminal.shown
    for rank in range(2):
        assert f"[{rank}] epoch:  " in shown  # live
        assert shown.count(f"[{rank}] epoch: 100%") >= 1
        assert f"[{rank}] trained" in shown
    assert shown.count("\x1b[?7l") == shown.count("\x1b[?7h") > 0


@pytest.mark.parametrize(("control", "drawn"), [("wait $!", False), ("fg", True)])
def test_bars_are_drawn_in_the_foreground_only(
    at_terminal: START, control: str, drawn: bool
) -> None:
    program = """
import sys, time
for n in range(10): sys.stderr.write(f'\\rbar {n}'); sys.stderr.flush(); time.sleep(0.1)
print(' end', file=sys.stderr)
"""
    shell = ["bash", "-c", f'set -m; "$@" & {control}', "-"]
    terminal = at_terminal("-n", 2, *python(program), within=shell)
    assert terminal.finish() == 0
    assert ("\x1b[?7l" in terminal.shown) == drawn
    for rank in range(2):
        assert f"[{rank}] bar 9 end\r\n" in terminal.shown


def test_interrupt_from_a_terminal_reaches_each_rank_once(at_terminal: START) -> None:
    script = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    terminal = at_terminal("-n", 2, "bash", "-c", script)
    for _ in range(2):
        terminal.until("ready")
    terminal.type("\x03")
    assert terminal.finish() == 130
    assert terminal.shown.count("caught") == 2


def test_second_job_with_the_same_log_files_warns(jobs: Jobs, tmp_path: Path) -> None:
    """The second says so, and leaves alone what it does not write itself."""
    wait = ("sh", "-c", "echo first {process_id}; exec sleep 1000")
    first = jobs.start("-n", 3, "--log-dir", tmp_path, *wait)
    first.read_until("first", 3)
    second = jobs.run("-n", 1, "--log-dir", tmp_path, "echo", "second")
    assert (second.status, second.out) == (0, b"[0] second\n")
    said = f"mcjax-launch: --log-dir: another running job writes {tmp_path}/0.out too: "
    assert second.stderr.startswith(said)
    assert second.stderr.count("another running job") == 1
    assert (tmp_path / "2.out").read_text() == "first 2\n"
    other = jobs.run("-n", 1, "--log-dir", tmp_path / "{job_id}", "true")
    assert "another running job" not in other.stderr
    first.kill_now()
    first.finish()
