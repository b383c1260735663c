"""Equal lines of several ranks, shown once."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest
from jobs import Jobs

from mcjax_launch.console.collapse import MOMENT_S, MOST_HELD, Collapse, Group
from mcjax_launch.ranks import ranges


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([3], "3"), ([1, 0], "0-1"), ([5, 0, 2, 1], "0-2,5"), ([0, 2, 4], "0,2,4")],
)
def test_ranges(ranks: list[int], words: str) -> None:
    assert ranges(ranks) == words


def lines(groups: list[Group]) -> list[str]:
    return [f"[{ranges(group.ranks)}] {group.text.decode()}" for group in groups]


def feed(collapse: Collapse, rank: int, text: str, now: float = 0.0) -> list[str]:
    return lines(collapse.feed(rank, 1, text.encode().split(), now, b""))


def test_a_line_of_all_ranks_is_shown_at_once() -> None:
    collapse = Collapse(3)
    assert feed(collapse, 0, "a b") == []
    assert feed(collapse, 2, "a") == []
    assert feed(collapse, 1, "a b") == ["[0-2] a"]
    assert feed(collapse, 2, "b") == ["[0-2] b"]
    assert collapse.due is None


def test_what_not_all_have_printed_waits_for_a_moment() -> None:
    collapse = Collapse(3)
    feed(collapse, 0, "a", 1.0)
    feed(collapse, 2, "b a", 1.1)
    assert collapse.due == 1.0 + MOMENT_S
    assert lines(collapse.expire(1.0 + MOMENT_S)) == ["[2] b", "[0,2] a"]
    assert collapse.due is None


def test_the_order_of_each_rank_is_kept() -> None:
    collapse = Collapse(2)
    feed(collapse, 0, "a b c")
    assert feed(collapse, 1, "c a") == ["[0] a", "[0] b", "[0-1] c"]
    assert lines(collapse.flush()) == ["[1] a"]


def test_lines_of_one_rank_in_between_do_not_matter() -> None:
    collapse = Collapse(3)
    feed(collapse, 0, "a u0 b v0 c")
    feed(collapse, 1, "a u1 v1 b c")
    assert feed(collapse, 2, "a") == ["[0-2] a"]
    assert feed(collapse, 2, "u2 b") == ["[0] u0", "[1] u1", "[1] v1", "[2] u2", "[0-2] b"]
    assert feed(collapse, 2, "c") == ["[0] v0", "[0-2] c"]


def test_a_line_that_has_waited_does_not_hurry_those_of_others() -> None:
    collapse = Collapse(3)
    feed(collapse, 0, "a", 1.0)
    feed(collapse, 1, "u", 1.1)
    assert lines(collapse.expire(1.0 + MOMENT_S)) == ["[0] a"]
    assert feed(collapse, 0, "u", 1.25) == []
    assert lines(collapse.expire(1.1 + MOMENT_S)) == ["[0-1] u"]


def test_one_rank_repeats_itself() -> None:
    collapse = Collapse(2)
    feed(collapse, 0, "a a a")
    assert feed(collapse, 1, "a a") == ["[0-1] a", "[0-1] a"]
    assert lines(collapse.flush()) == ["[0] a"]


def test_streams_are_kept_apart() -> None:
    collapse = Collapse(2)
    collapse.feed(0, 1, [b"a"], 0.0, b"")
    assert collapse.feed(1, 2, [b"a"], 0.0, b"") == []


def test_one_rank_alone_never_waits() -> None:
    assert feed(Collapse(1), 7, "a b") == ["[7] a", "[7] b"]


def test_a_flood_is_not_held_back() -> None:
    collapse, out = Collapse(2), 0
    for _ in range(3):
        out += len(collapse.feed(0, 1, [b"x" * 100] * 1000, 0.0, b""))
        assert (3000 - out) * 100 <= MOST_HELD
    assert out > 0
    assert len(collapse.feed(0, 1, [b"y" * MOST_HELD], 0.0, b"")) == 3000 - out + 1


def test_nothing_is_lost_or_reordered_by_chance() -> None:
    rng = random.Random(2)
    for _ in range(30):
        ranks, collapse, now = 4, Collapse(4), 0.0
        said: dict[int, list[bytes]] = {rank: [] for rank in range(ranks)}
        out: list[Group] = []
        for _ in range(60):
            rank, now = rng.randrange(ranks), now + rng.random() * 0.05
            texts = [rng.choice([b"a", b"b", b"c"]) for _ in range(rng.randrange(1, 5))]
            said[rank] += texts
            out += collapse.feed(rank, 1, texts, now, b"") + collapse.expire(now)
        out += collapse.flush()
        for rank in range(ranks):
            assert [group.text for group in out if rank in group.ranks] == said[rank]


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


def test_some_ranks_of_those_that_are_shown(jobs: Jobs) -> None:
    script = "echo all; [ {process_id} = 2 ] || echo some"
    ended = jobs.run("-n", 6, "--show", "0-4", "--collapse", "bash", "-c", script)
    assert ended.stdout == "[0-4] all\n[0-1,3-4] some\n"


def test_hosts_are_named_where_a_rank_is_alone(jobs: Jobs, tmp_path: Path) -> None:
    via = tmp_path / "via"
    via.write_text('#!/bin/sh\nshift\nexec sh -c "$1"\n')
    via.chmod(0o755)
    options = ["--hosts", "a:2,b", "--via", f"{via} {{host}} {{command}}", "--collapse"]
    ended = jobs.run(*options, "bash", "-c", "[ {process_id} = 2 ] && echo alone; echo all")
    assert ended.stdout.splitlines()[0] == "[2 b] alone"
    assert ended.stdout.splitlines()[1:] == ["[0-2] all"]


def test_colour_and_time(jobs: Jobs) -> None:
    options = ["--collapse", "--timestamps", "--color", "always"]
    ended = jobs.run("-n", 2, *options, "echo", "x")
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


def test_a_flood_is_whole(jobs: Jobs) -> None:
    count = 20_000
    ended = jobs.run("-n", 3, "--collapse", "seq", count)
    for rank in range(3):
        shown = [f"[{rank}]", "[0-2]", *(f"[{two}]" for two in PAIRS if str(rank) in two)]
        seen = [line.split() for line in ended.stdout.splitlines()]
        mine = [text for ranks, text in seen if ranks in shown]
        assert mine == [str(n) for n in range(1, count + 1)]


def test_it_needs_prefixes(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--collapse", "--no-prefix", "echo", "x")
    assert (ended.status, ended.out) == (2, b"")
    assert ended.report == "--collapse needs the prefix: leave out --no-prefix"
