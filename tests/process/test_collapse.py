"""Equal lines of several ranks, shown once."""

import os
import signal
import sys
import time
from pathlib import Path

from jobs import Jobs, at_once
from shown import check_whole

from mcjax_launch.ranks import parse_ranges


def test_a_job(jobs: Jobs) -> None:
    program = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready', sys.argv[1], flush=True)
signal.sigwait([signal.SIGUSR1])
print('same', 'only ' + sys.argv[1], 'same again', 'end', sep='\\n', end='')
print('err', file=sys.stderr)
"""
    command = [sys.executable, "-c", program, "{process_id}"]
    running = jobs.start("-n", 4, "--collapse", *command)
    running.read_until("ready", 4)
    running.out = b""
    running.signal(signal.SIGUSR1)
    ended = running.finish()
    out = ended.stdout.splitlines()
    assert [line for line in out if "only" not in line] == [
        "[0-3] same",
        "[0-3] same again",
        "[0-3] end",
    ]
    assert sorted(line for line in out if "only" in line) == [f"[{n}] only {n}" for n in range(4)]
    assert ended.stderr == "[0-3] err\n"


def together(jobs: Jobs, gate: Path, shown: int, options: list[object], script: str) -> str:
    """What ranks print that run a script at the same time, however late each was started."""
    os.mkfifo(gate)
    wait = f"echo ready; : <{gate}; {script}"
    running = jobs.start(*options, "--collapse", "bash", "-c", wait)
    running.read_until("ready")
    while ranks_in(running.out) < shown:
        running.read_some()
    running.out = b""
    opened = os.open(gate, os.O_WRONLY)  # which wakes all who wait for that
    ended = running.finish()
    os.close(opened)
    assert ended.status == 0, ended.stderr
    return ended.stdout


def ranks_in(out: bytes) -> int:
    """How many ranks have said that they are ready, in collapsed lines."""
    found: set[int] = set()
    for line in out.decode().rpartition("\n")[0].splitlines():
        found |= parse_ranges(line[1:].split("]")[0].split(" ")[0])
    return len(found)


def test_some_ranks_of_those_that_are_shown(jobs: Jobs, tmp_path: Path) -> None:
    script = "echo all; [ {process_id} = 2 ] || echo some"
    out = together(jobs, tmp_path / "go", 5, ["-n", 6, "--show", "0-4"], script)
    assert out == "[0-4] all\n[0-1,3-4] some\n"


def test_hosts_are_named_where_a_rank_is_alone(jobs: Jobs, tmp_path: Path) -> None:
    via = tmp_path / "via"
    via.write_text('#!/bin/sh\nshift\nexec sh -c "$1"\n')
    via.chmod(0o755)
    options: list[object] = ["--hosts", "a:2,b", "--via", f"{via} {{host}} {{command}}"]
    script = "[ {process_id} = 2 ] && printf 'alone\\nall\\n' || echo all"
    out = together(jobs, tmp_path / "go", 3, options, script)
    assert out.splitlines() == ["[2 b] alone", "[0-2] all"]


def test_colour_and_time(jobs: Jobs, tmp_path: Path) -> None:
    options = ["--collapse", "--timestamps", "--color", "always"]
    ended = jobs.run("-n", 2, *options, *at_once("echo x", tmp_path))
    clock, rest = ended.stdout.split(" ", 1)
    assert rest == "\x1b[1m[0-1]\x1b[0m x\n"
    time.strptime(clock.split(".")[0], "%H:%M:%S")


def test_a_line_alone_is_shown_while_the_job_goes_on(jobs: Jobs) -> None:
    script = "[ {process_id} = 1 ] && echo alone; exec sleep 60"
    running = jobs.start("-n", 3, "--collapse", "bash", "-c", script)
    assert running.read_until("alone\n") == "[1] alone\n"
    running.process.terminate()
    running.finish()


def test_a_prompt_is_completed_in_place(jobs: Jobs) -> None:
    script = "trap 'echo yes; echo done; exit' USR1; printf '? '; while :; do sleep 0.1; done"
    running = jobs.start("-n", 1, "--collapse", "bash", "-c", script)
    assert running.read_until("? ") == "[0] ? "
    running.signal(signal.SIGUSR1)
    assert running.finish().stdout == "[0] ? yes\n[0] done\n"


PAIRS = ("0-1", "0,2", "1-2")


def test_a_flood_is_whole(jobs: Jobs, tmp_path: Path) -> None:
    written = [str(n) for n in range(1, 20_001)]
    ended = jobs.run("-n", 3, "--collapse", "--log-dir", tmp_path, "seq", len(written))
    seen = [line.split() for line in ended.stdout.splitlines()]
    for rank in range(3):
        prefixes = [f"[{rank}]", "[0-2]", *(f"[{two}]" for two in PAIRS if str(rank) in two)]
        check_whole([text for ranks, text in seen if ranks in prefixes], written)
        assert (tmp_path / f"{rank}.out").read_text().splitlines() == written


def test_collapse_needs_prefixes(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--collapse", "--no-prefix", "echo", "x")
    assert (ended.status, ended.out) == (2, b"")
    assert ended.report == "--collapse cannot be combined with --no-prefix"
