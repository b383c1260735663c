"""The whole console: chunks in, what the user sees on its two streams out."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcjax_launch.console.console import Console
from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.journal.sink import make_standard_sinks
from mcjax_launch.machine.loop import Loop
from mcjax_launch.options.options import OutputOptions
from mcjax_launch.transport.staged_paths import StagedPaths
from mcjax_launch.wire.frames import STDERR, STDOUT, Data

GLOO = (
    b"[Gloo] Rank 0 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3\n"
)
POLLED = (
    b"E1120 10:33:29.981005   26150 coordination_service_agent.cc:289] Polled an error from "
    b"coordination service (this can be an error from this or another task).\n"
)
# Of three ranks, those that show a line of this one.
PREFIXES = [("0", "0-1", "0,2", "0-2"), ("1", "0-1", "1-2", "0-2"), ("2", "0,2", "1-2", "0-2")]
Make = Callable[..., Console]


@pytest.fixture
def console(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def make(
        ranks: int = 2, rewrite: Callable[[bytes], bytes] | None = None, **style: object
    ) -> Console:
        made = Console(
            OutputOptions(**style),  # type: ignore[arg-type]
            make_standard_sinks(Loop()),
            lambda error: pytest.fail("the reader is gone"),
            lambda: None,
            rewrite=rewrite,
        )
        made.add_ranks([RankLabel(rank) for rank in range(ranks)], append=False)
        return made

    return make


Capture = pytest.CaptureFixture[str]


def job_ends(console: Console, culprit: int) -> None:
    console.set_verdict(culprit, Verdict.FAILED, None)
    console.fold_victims(own_term=True)


def wait(console: Console) -> None:
    """Let the time pass until something happens."""
    due = console.deadline
    assert due is not None
    for _ in range(2):  # turns of the loop: output may have come in the first
        console.expire(due)


def test_own_lines_never_act_on_the_terminal(console: Make, capfd: Capture) -> None:
    """They name files and hosts, whose names may hold anything."""
    own = console(verbose=True)
    own.say("--compile-cache /tmp/\x1b[2J is not used")
    own.note("\x9b1m\nsecond \x07")
    own.show_detail("\x1b]0;title")
    own.show_summary(["failed: \x1b[31m", "\x1b[0m"], alarm=True)
    assert capfd.readouterr().err.splitlines() == [
        f"mcjax-launch: {line}"
        for line in (
            "--compile-cache /tmp/\\x1b[2J is not used",
            "\\x9b1m",
            "second \\x07",
            "\\x1b]0;title",
            "failed: \\x1b[31m",
            "\\x1b[0m",
        )
    ]


def test_lines_keep_their_streams(console: Make, capfd: Capture) -> None:
    both = console()
    both.on_data(Data(0, STDOUT, b"a\nb"), time.monotonic())
    both.on_data(Data(1, STDERR, b"c\n"), time.monotonic())
    both.on_data(Data(0, STDOUT, b"\n"), time.monotonic())
    both.say("one\ntwo")
    assert capfd.readouterr() == ("[0] a\n[0] b\n", "[1] c\nmcjax-launch: one\nmcjax-launch: two\n")
    assert both.deadline is None
    assert both.has_room
    assert both.empty


def test_only_some_ranks_are_shown(console: Make, capfd: Capture) -> None:
    some = console(3, show=(1,))
    for rank in range(3):
        some.on_data(Data(rank, STDERR, b"x\n"), time.monotonic())
    assert capfd.readouterr().err == "[1] x\n"


@pytest.mark.parametrize("collapse", ["never", "always"])
@pytest.mark.parametrize("lines", [1, 200])
def test_long_error_stays_visible_until_more_is_shown(
    console: Make, lines: int, collapse: str
) -> None:
    """Also where its lines have waited for other ranks."""
    both = console(collapse=collapse)
    both.on_data(Data(0, STDERR, b"of an error\n" * lines), time.monotonic())
    both.finish_ranks()
    assert (both.is_on_screen(0), both.is_on_screen(1)) == (True, False)
    both.say("more\n" * 200)
    assert not both.is_on_screen(0)


def test_hidden_lines_are_mentioned_at_the_end_but_not_with_quiet(
    console: Make, capfd: Capture
) -> None:
    for quiet in (False, True):
        both = console(quiet=quiet)
        job_ends(both, 1)
        both.on_data(Data(0, STDERR, POLLED), time.monotonic())
        both.finish_ranks()
        both.finish_ranks()
        assert capfd.readouterr().err.count("hid 1 line") == (not quiet)


def test_equal_lines_are_shown_once(console: Make, capfd: Capture) -> None:
    three = console(3, collapse="always")
    for rank in range(3):
        three.on_data(Data(rank, STDOUT, b"same\n"), time.monotonic())
    three.on_data(Data(1, STDOUT, b"alone\nName? "), time.monotonic())
    assert capfd.readouterr().out == "[0-2] same\n"
    wait(three)
    assert capfd.readouterr().out == "[1] alone\n[1] Name? "  # which cannot wait


def test_end_shows_all_waiting_lines(console: Make, capfd: Capture) -> None:
    three = console(3, collapse="always")
    three.on_data(Data(0, STDOUT, b"a\nb"), time.monotonic())
    three.on_data(Data(0, STDERR, b"Traceback (most recent call last):"), time.monotonic())
    three.on_data(Data(1, STDERR, b"Name? "), time.monotonic())
    wait(three)
    three.finish_ranks()
    out, err = capfd.readouterr()
    assert out == "[0] a\n[0] b\n"
    assert sorted(err.splitlines()) == [
        "[0] Traceback (most recent call last):",
        "[1] Name? ",
    ]
    assert three.deadline is None


@pytest.mark.parametrize("collapse", ["never", "always"])
@pytest.mark.parametrize("verbose", [False, True])
def test_nothing_is_lost_torn_or_reordered_by_chance(
    console: Make, capfd: Capture, collapse: str, verbose: bool
) -> None:
    """A line that was shown in part and then interrupted is shown whole once it is complete."""
    rng = random.Random(3)
    texts = [
        b"a\n",
        b"b b\n",
        b"",
        b"1%\r2%\r",
        b"Name? ",
        b"\n",
        GLOO[:30],
        POLLED[:50],
        b"x" * 99,
    ]
    for _ in range(20):
        three = console(3, collapse=collapse, verbose=verbose)
        said = {(rank, stream): b"" for rank in range(3) for stream in (STDOUT, STDERR)}
        for _ in range(60):
            key = rng.choice(list(said))
            data = b"".join(rng.choices(texts, k=rng.randrange(1, 6)))
            said[key] += data
            three.on_data(Data(*key, data), time.monotonic())
            if rng.random() < 0.2 and three.deadline is not None:
                wait(three)
        three.finish_ranks()
        shown = capfd.readouterr()
        for (rank, stream), text in said.items():
            lines = (shown.out if stream == STDOUT else shown.err).split("\n")
            parted = [_without_prefixes(line) for line in lines]
            lines = [rest for ranks, _, rest in parted if ranks in PREFIXES[rank]]
            seen = iter(lines)
            *expected, last = text.decode().split("\n")
            assert all(line in seen for line in expected), (rank, stream, expected)
            assert "".join(lines).endswith(last.rpartition("\r")[2]), (rank, stream, last)


def _without_prefixes(line: str) -> tuple[str, str, str]:
    """A line's ranks, and its text without what is put in again where it returns to its start."""
    ranks, mark, rest = line[1:].partition("] ")
    return ranks, mark, rest.replace(f"\r[{ranks}] ", "\r")


def test_output_to_files_continues_during_debugging(console: Make, capfd: Capture) -> None:
    to_files = console()
    to_files.on_data(Data(0, STDOUT, b"before"), time.monotonic())
    to_files.hold()
    to_files.on_data(Data(0, STDOUT, b" and after\n"), time.monotonic())
    to_files.on_data(Data(1, STDOUT, b"other\n"), time.monotonic())
    assert to_files.pop_aside(0, cut=False) == b""
    to_files.release()
    assert capfd.readouterr().out == "[0] before and after\n[1] other\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_paths_of_copies_are_replaced_in_whole_lines(
    console: Make, capfd: Capture, tmp_path: Path, verbose: bool
) -> None:
    """Wherever a chunk ends; the log files have what was printed."""
    copies = [f"/tmp/mcjax-{rank}/stage" for rank in range(2)]
    paths = StagedPaths(["train.py"], "/home/me")
    for copy in copies:
        paths.add(copy)
    both = console(rewrite=paths.in_bytes, collapse="always", verbose=verbose)
    both.add_ranks([RankLabel(rank, folder=str(tmp_path)) for rank in range(2)], append=False)
    printed = [f'before\n  File "{copy}/train.py", line 3\nafter' for copy in copies]
    for rank, text in enumerate(printed):
        for byte in text.encode():
            both.on_data(Data(rank, STDERR, bytes([byte])), time.monotonic())
    shown = 'before\n  File "/home/me/train.py", line 3\nafter'
    both.finish_ranks()
    assert capfd.readouterr().err == "".join(f"[0-1] {line}\n" for line in shown.split("\n"))
    assert [(tmp_path / f"{rank}.err").read_text() for rank in range(2)] == printed


USAGE = b"usage: train.py [-h] --lr LR\n                [--steps N]\ntrain.py: error: no --lr\n"


@pytest.mark.parametrize("ending", ["before", "after", "never"])
def test_equal_usage_of_several_ranks_is_shown_once(
    console: Make, capfd: Capture, ending: str
) -> None:
    three = console(3)
    if ending == "before":
        job_ends(three, 0)
    for rank in range(3):
        three.on_data(Data(rank, STDERR, USAGE), time.monotonic())
        wait_if_any(three)
    if ending == "after":
        job_ends(three, 0)
    three.finish_ranks()
    shown = capfd.readouterr().err
    count = 3 if ending == "never" else 1
    assert [shown.count(f"] {line}\n") for line in USAGE.decode().splitlines()] == [count] * 3
    assert ("hid 6 lines of the same error in ranks 1-2" in shown) == (ending != "never")


def wait_if_any(console: Console) -> None:
    if console.deadline is not None and console.deadline < time.monotonic() + 0.2:
        wait(console)


def test_harmless_usage_text_is_shown(console: Make, capfd: Capture) -> None:
    """A helper's help, a line of a log, and what a rank could not print to its end."""
    both = console()
    for rank in range(2):
        both.on_data(
            Data(rank, STDERR, b"usage: 80 %\nmemory usage: 3 GB\nusage: x [-h]\n"),
            time.monotonic(),
        )
    job_ends(both, 0)
    both.finish_ranks()
    assert capfd.readouterr().err.count("usage: ") == 6


def test_an_unfinished_line_is_not_shown_while_its_end_may_be_unread(
    console: Make, capfd: Capture
) -> None:
    """As where the launcher was stopped: then all timers are due before all has been read."""
    screen = console(1)
    screen.on_data(Data(0, STDOUT, b"beg"), time.monotonic())
    screen.expire(time.monotonic() + 100)
    screen.on_data(Data(0, STDOUT, b"in"), time.monotonic())
    screen.expire(time.monotonic() + 100)
    assert capfd.readouterr().out == ""
    screen.expire(time.monotonic() + 100)
    assert capfd.readouterr().out == "[0] begin"


def test_unfinished_line_is_shown_while_other_ranks_print(console: Make, capfd: Capture) -> None:
    both = console(2)
    both.on_data(Data(0, STDOUT, b"Name? "), time.monotonic())
    for _ in range(20):
        both.on_data(Data(1, STDOUT, b"x\n"), time.monotonic())
        both.expire(time.monotonic() + 100)
    assert "[0] Name? " in capfd.readouterr().out
