"""What stands before a line."""

import time

from mcjax_launch.console.prefix import Prefixes, RankLabel, format_time_of_day, wants_colour

PLAIN, COLOURED = Prefixes(shown=True, colour=False), Prefixes(shown=True, colour=True)


def test_prefix_of_a_rank_is_coloured() -> None:
    assert PLAIN.format_rank_prefix(RankLabel(3), 1) == b"[3] "
    assert PLAIN.format_rank_prefix(RankLabel(3, "gpu7"), 2) == b"[ 3 gpu7] "
    assert COLOURED.format_rank_prefix(RankLabel(10), 2) == b"\x1b[36m[10]\x1b[0m "


def test_prefix_of_several_ranks_is_bold() -> None:
    assert PLAIN.format_shared_prefix([5, 0, 1]) == b"[0-1,5] "
    assert COLOURED.format_shared_prefix([0, 1]) == b"\x1b[1m[0-1]\x1b[0m "


def test_prefix_can_be_turned_off() -> None:
    prefixes = Prefixes(shown=False, colour=True)
    assert (
        prefixes.format_rank_prefix(RankLabel(3), 1) == prefixes.format_shared_prefix([0, 1]) == b""
    )


def test_launcher_lines_have_their_own_style() -> None:
    """A name that stands back, a headline that stands out, and no colour of a rank's."""
    name = "\x1b[2mmcjax-launch:\x1b[0m"
    for keywords in ({}, {"headline": True}, {"headline": True, "alarm": True}):
        assert PLAIN.format_own_line("hint: do", **keywords) == "mcjax-launch: hint: do\n"
    assert COLOURED.format_own_line("a note") == f"{name} a note\n"
    assert COLOURED.format_own_line("hint: do") == f"{name} \x1b[1mhint:\x1b[0m do\n"
    assert COLOURED.format_own_line("stopped", headline=True) == f"{name} \x1b[1mstopped\x1b[0m\n"
    failed = COLOURED.format_own_line("failed", headline=True, alarm=True)
    assert failed == f"{name} \x1b[1;31mfailed\x1b[0m\n"


def test_the_status_fits_any_terminal() -> None:
    for columns in (0, 1, 5, 13, 14, 20, 80):
        shown = "mcjax-launch: 3/4 joined, waiting for 2"[: max(0, columns - 1)]
        assert PLAIN.format_status("3/4 joined, waiting for 2", columns) == shown


def test_time_of_day_has_milliseconds() -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(1_000_000))
    assert format_time_of_day(1_000_000.25) == f"{clock}.250 ".encode()


def test_colour_depends_on_option_terminal_and_environment() -> None:
    """By --color, whether it is a terminal, and the environment."""
    xterm = {"TERM": "xterm"}
    assert wants_colour("auto", True, xterm) and not wants_colour("auto", False, xterm)
    for variables in ({}, {"TERM": ""}, {"TERM": "dumb"}, xterm | {"NO_COLOR": "1"}):
        assert not wants_colour("auto", True, variables)
    assert wants_colour("auto", True, xterm | {"NO_COLOR": ""})
    assert wants_colour("auto", False, {"FORCE_COLOR": "1"})
    assert not wants_colour("auto", True, xterm | {"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert not wants_colour("never", True, {"FORCE_COLOR": "1"})
    assert wants_colour("always", False, {"NO_COLOR": "1"})
