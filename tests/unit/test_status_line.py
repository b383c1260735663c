"""The status line: when it is there, what it leaves behind (nothing), and what it says."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from records import run_of, say
from screen import Screen

from mcjax_launch.console.bottom import SILENCE_S, StatusLine, Written
from mcjax_launch.console.console import Console
from mcjax_launch.console.pieces import Fragment, Stream, make_lines
from mcjax_launch.console.renderers import Live
from mcjax_launch.features.recorder.sequences import MeshSequence, ProgramSequences
from mcjax_launch.journal.facts import ProgramsCounted
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher import progress
from mcjax_launch.launcher.progress import Progress
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.frames import Data
from mcjax_launch.wire.messages import RankUsage, Started, Usage


class Drawn:
    """A status line, and all that was drawn."""

    def __init__(self, live: bool = False) -> None:
        self.all: list[str] = []
        self.line = StatusLine(self.all.append, live)


def test_status_line_disappears_and_returns() -> None:
    drawn = Drawn()
    line = drawn.line
    line.say("a", 0.0)
    assert (drawn.all, line.deadline) == (["a"], None)
    for at in (1.0, 1.5, 1.9):
        line.hide_for_output(at)
    line.say("b", 2.0)
    assert (drawn.all, line.deadline) == (["a", ""], 1.9 + SILENCE_S)
    line.expire(2.5)
    assert drawn.all[-1] == ""
    line.expire(1.9 + SILENCE_S)
    assert (drawn.all, line.deadline) == (["a", "", "b"], None)
    line.say("b", 9.0)  # nothing new, and nothing is drawn
    line.say("", 10.0)
    line.hide_for_output(10.0)
    assert (drawn.all, line.deadline) == (["a", "", "b", ""], None)


def test_status_line_is_redrawn_for_another_size_if_there_is_one() -> None:
    drawn = Drawn()
    drawn.line.say("a", 0.0)
    shown: list[Any] = [drawn.line, None]
    for line in shown:
        Console.redraw_status(SimpleNamespace(status_line=line))  # type: ignore[arg-type]
    assert drawn.all == ["a", "a"]


def test_status_line_stays_away_from_a_screen_in_use() -> None:
    drawn = Drawn()
    drawn.line.say("a", 0.0)
    drawn.line.hold()
    drawn.line.hide_for_output(1.0)  # a rank prints, to be shown later
    drawn.line.say("b", 1e9)
    drawn.line.expire(1e9)
    drawn.line.redraw()
    assert (drawn.all, drawn.line.deadline) == (["a", ""], None)
    drawn.line.release(1e9)
    drawn.line.expire(1e9 + SILENCE_S)
    assert drawn.all[-1] == "b"


def test_live_status_line_stays() -> None:
    drawn = Drawn(live=True)
    drawn.line.say("a", 0.0)
    drawn.line.hide_for_output(1.0)
    assert (drawn.all, drawn.line.deadline) == (["a"], None)
    drawn.line.hold()
    drawn.line.release(2.0)
    assert (drawn.all, drawn.line.deadline) == (["a", ""], 2.0)
    drawn.line.expire(2.0)
    assert drawn.all == ["a", "", "a"]


def test_pinned_rows_stay_while_the_output_scrolls() -> None:
    height, screen, ours = 5, Screen(40, 5), True
    live = Live(lambda: height, is_in_foreground=lambda: ours)
    live.pin_rows()

    def write(written: Written) -> str:
        text = b"".join(written).decode()
        screen.write(text)
        return text

    write(live.render_own(b"one\n"))
    write(live.render_status(b"status\n[0] a"))
    assert screen.shown == ["one", "", "", "status", "[0] a"]
    flood = b"".join(b"line %d\n" % n for n in range(100))
    assert write(live.render_own(flood)) == flood.decode()  # which leaves the rows alone
    assert screen.shown == ["line 98", "line 99", "", "status", "[0] a"]
    write(live.render_fragment(Fragment(Stream(0, 1, b"[0] "), b"50 %"), 0.0))
    assert screen.shown == ["line 99", "", "[0] 50 %", "status", "[0] a"]
    height = 4  # too few for rows and output: the output is what counts
    write(live.render_own(b"two\n"))
    assert screen.shown == ["line 99", "two", "", "", ""]
    height = 5
    write(live.render_status(b"status"))
    assert screen.shown == ["line 99", "two", "", "[0] 50 %", "status"]
    write(live.make_room())
    assert screen.rows[-3:] == ["line 98", "line 99", "two"]
    ours = False
    assert write(live.render_status(b"changed")) == ""
    ours = True
    write(live.render_again())
    assert screen.shown[-2:] == ["[0] 50 %", "changed"]


def test_each_rank_has_a_row() -> None:
    state = joining(3, 2)
    used(state, 10.0, 1.0, 1.0, 1.0)
    used(state, 12.0, 2.0, 1.0, 1.0)
    state.on_data(Data(2, 1, b""), 9.0)
    assert progress.format_rank_rows(state, 12.0, 20) == [
        "[0] waiting for rank 2   0.5 cores   512 MiB",
        "[1] waiting for rank 2   0.0 cores   512 MiB",
        "[2] running              0.0 cores   512 MiB  last line 3 s ago",
    ]
    say(state, 2, hook.Compiling("jit_f", "a.py:1", "cpu"), 13.0)
    assert progress.format_rank_rows(state, 13.0, 20)[2].startswith("[2] compiling  ")
    many = joining(100)
    many.on_data(Data(7, 1, b""), 1.0)
    many.ranks[9].process.status = 0
    found = progress.format_rank_rows(many, 2.0, 50)
    assert found[-1] == "the other 98 ranks: importing"
    assert [row[:12] for row in found[:-1]] == ["[ 7] running", "[ 9] exited "]
    assert progress.format_rank_rows(joining(6), 2.0, 2) == ["all 6 ranks: importing"]
    assert (
        progress.format_rank_rows(many, 2.0, 2)[1]
        == "the other 99 ranks: 98 importing, 1 elsewhere"
    )


def test_rank_rows_show_what_ranks_wait_for() -> None:
    state, words = joining(3), []
    for rank in range(3):
        state.on_data(Data(rank, 1, b""), 0.0)
    mesh = MeshSequence(range(3))
    state.sequences = ProgramSequences()
    state.sequences.meshes[0, 1] = mesh
    for at, ran in ((1.0, (5, 5, 5)), (2.0, (6, 6, 5)), (9.0, ()), (10.0, (6, 6, 6)), (20.0, ())):
        for rank, count in enumerate(ran):
            own = mesh.by_rank[rank]
            mesh.add(rank, own.count + 1, [1] * (count - own.count), 0, at)
        words.append(
            [row[4:].partition("  ")[0] for row in progress.format_rank_rows(state, at, 20)]
        )
    waiting = ["waiting for rank 2", "waiting for rank 2", "running"]
    running = ["running"] * 3
    assert words == [running, running, waiting, running, running]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("pinned", [False, True])
def test_no_trace_of_the_status_line_remains(seed: int, pinned: bool) -> None:
    """However lines, unfinished lines and the status follow one another."""
    chance = random.Random(seed)
    live, screen, lines = Live(lambda: 9), Screen(40, 9 if pinned else 0), []
    if pinned:
        live.pin_rows()
    bars: dict[int, str] = {}
    status = ""
    sources = [Stream(rank, 1, b"[%d] " % rank) for rank in range(3)]
    for n in range(200):
        rank = chance.randrange(3)
        match chance.randrange(5):
            case 0:
                status = chance.choice(["", f"status {n}"])
                written = live.render_status(status.encode())
            case 1:
                written = live.render_own(b"own %d\n" % n)
                lines.append(f"own {n}")
            case 2 if rank in bars:
                written = live.render_fragment(Fragment(sources[rank], b"\n"), 0.0)
                lines.append(f"[{rank}] {bars.pop(rank)}")
            case 2 | 3 if rank not in bars:
                bars[rank] = f"bar {n}"
                written = live.render_fragment(Fragment(sources[rank], bars[rank].encode()), 0.0)
            case _ if rank not in bars:
                written = live.render_lines(make_lines(sources[rank], b"line %d\n" % n))
                lines.append(f"[{rank}] line {n}")
            case _:
                written = []
        screen.write(b"".join(written).decode())
        below = [f"[{rank}] {bars[rank]}" for rank in sorted(bars)] + ([status] if status else [])
        assert [row for row in screen.rows if row] == lines + below
        assert not status or screen.column == 0  # where a terminal that is resized keeps it
        if pinned and below:
            assert screen.shown[-len(below) :] == below
        else:
            assert screen.rows == lines + below


# --- what it says ---


class Hosts:
    """A startup."""

    def __init__(self, *missing: str, hosts: int = 1) -> None:
        self.missing = list(missing)
        self.hosts = hosts

    @property
    def ready(self) -> int:
        return self.hosts - len(self.missing)


def joining(ranks: int, called: int = 0, through: int = 0) -> RunState:
    state = run_of(ranks)
    for rank in range(ranks):
        state.on_started(Started(rank, 7), 0.5)
    for rank in range(called):
        say(state, rank, hook.Joining("h:1", ranks, rank), 1.0)
    for rank in range(through):
        say(state, rank, hook.Joined(rank), 2.0)
    return state


def awaited(state: RunState, startup: Any = None) -> str:
    return progress.describe_delay(startup or Hosts(), state)  # type: ignore[arg-type]


def test_status_shows_missing_hosts() -> None:
    state = RunState()
    assert awaited(state, Hosts("gpu3", hosts=4)) == "3/4 hosts ready, waiting for gpu3"
    assert awaited(state, Hosts("localhost")) == "0/1 host ready, waiting for localhost"
    many = Hosts(*"abcdef", hosts=9)
    assert awaited(state, many) == "3/9 hosts ready, waiting for a, b, c, d and 2 more"
    assert awaited(state, Hosts(hosts=2)) == "2 hosts ready, preparing the ranks"


def test_status_shows_missing_ranks() -> None:
    assert awaited(run_of(2)) == "0/2 ranks started"
    assert awaited(joining(4)) == ""  # maybe no job of JAX's
    assert awaited(joining(4, 3)) == "3/4 joined, waiting for 3"
    assert awaited(joining(4, 1)) == "1/4 joined, waiting for 1-3"
    assert awaited(joining(4, 4, 3)) == "4/4 joined, in initialize()"
    assert awaited(joining(4, 4, 4)) == ""
    assert awaited(joining(1, 1)) == ""
    holes = joining(60)
    for rank in range(0, 60, 2):
        say(holes, rank, hook.Joining("h:1", 60, rank), 1.0)
    assert awaited(holes) == "30/60 joined, waiting for 1,3,5,7,9,11,13,15,17, ... (30 ranks)"


def used(state: RunState, at: float, *cpu_s: float) -> None:
    ranks = (RankUsage(rank, of_it, 512 << 10) for rank, of_it in enumerate(cpu_s))
    state.on_usage(Usage(tuple(ranks)), at)


def test_status_shows_usage() -> None:
    state = joining(3, 3, 3)
    used(state, 10.0, 1.0, 1.0, 1.0)
    used(state, 11.0, 2.0, 1.5, 1.0)
    state.on_data(Data(1, 1, b""), 5.0)
    assert (
        progress.format_job_use(state, 20.0)
        == "ranks 0-1 busy, 1.5 cores | 1.5 GiB | last line 15 s ago"
    )
    used(state, 12.0, 3.0, 2.5, 2.0)
    assert progress.format_job_use(state, 20.0).startswith("all 3 busy, 3.0 cores | ")
    used(state, 13.0, 3.0, 2.5, 2.0)
    assert progress.format_job_use(state, 20.0).startswith("idle | 1.5 GiB | ")
    state.ranks[0].process.status = 0
    assert progress.format_job_use(state, 20.0).startswith("2/3 ranks run | idle | 1.0 GiB | ")
    state.on_stop_reason(StopReason("x", 1), 14.0)
    assert progress.format_job_use(state, 3605.0) == (
        "ending, 2 ranks left | idle | 1.0 GiB | last line 1 h 0 min ago"
    )


def test_status_shows_usage_of_two_ranks() -> None:
    state = joining(2, 2)
    used(state, 10.0, 1.0, 1.0)
    used(state, 11.0, 2.0, 2.0)
    assert progress.format_job_use(state, 20.0).startswith("both busy, 2.0 cores | ")


def test_status_shows_programs_and_how_many_a_second() -> None:
    state = joining(2, 2)
    state.on_programs_counted(ProgramsCounted(1, 0), 10.0)
    assert progress.format_job_use(state, 10.0) == ""
    state.on_programs_counted(ProgramsCounted(1, 1), 11.0)
    assert progress.format_job_use(state, 11.0) == "1 program, 1.0/s"
    for second in range(40):
        state.on_programs_counted(ProgramsCounted(0, 1200 + 31 * second), 20.0 + second)
    assert progress.format_job_use(state, 60.0) == "2,409 programs, 31/s"
    assert progress.format_rank_rows(state, 60.0, 20)[0].endswith("2,409 programs, 31/s")
    assert progress.format_rank_rows(state, 60.0, 20)[1].endswith("1 program, 0/s")
    # None have been reported for long.
    assert progress.format_job_use(state, 300.0) == "2,409 programs, 0.6/s"


def test_programs_are_progress_but_a_report_of_none_is_not() -> None:
    state = joining(2, 2)
    state.on_programs_counted(ProgramsCounted(1, 5), 10.0)
    state.on_programs_counted(ProgramsCounted(1, 5), 12.0)
    state.on_programs_counted(ProgramsCounted(1, 4), 13.0)  # the last one is withdrawn
    assert state.activity.active_at == 10.0


def test_plain_status_line_changes_with_events_only() -> None:
    drawn, state, startup = Drawn(), joining(2), Hosts()
    part = Progress(drawn.line, startup, state)  # type: ignore[arg-type]
    assert part.deadline == 0.0
    part.expire(10.0)
    assert (drawn.all, part.deadline) == ([], None)
    say(state, 0, hook.Joining("h:1", 2, 0), 10.1)
    part.expire(10.1)
    assert part.deadline == 10.2  # not at once: more may come
    part.expire(10.2)
    assert (drawn.all, part.deadline) == (["1/2 joined, waiting for 1"], None)
    for _ in range(3):
        part.expire(20.0)
    assert (len(drawn.all), part.deadline) == (1, None)
    say(state, 1, hook.Joining("h:1", 2, 1), 21.0)
    say(state, 0, hook.Joined(0), 21.0)
    say(state, 1, hook.Joined(1), 21.0)
    part.expire(21.0)
    assert (drawn.all[-1], part.deadline) == ("", None)


def test_live_status_line_is_redrawn_each_second() -> None:
    drawn, state = Drawn(live=True), joining(2, 2, 2)
    part = Progress(drawn.line, Hosts(), state)  # type: ignore[arg-type]
    for at in (10.0, 11.0, 12.0):
        part.expire(at)
        assert part.deadline == at + 1
    assert drawn.all == ["10 s", "11 s", "12 s"]
