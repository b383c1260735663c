"""Text from elsewhere on a line of the launcher's own."""

from mcjax_launch.errors import LaunchError
from mcjax_launch.journal.stop_reasons import host_lost
from mcjax_launch.wording import escape_unprintable, format_one_line

SHOWN = {
    "plain": "plain",
    "a\tb é 日本": "a\tb é 日本",
    "\x1b[31mred\x07": "\\x1b[31mred\\x07",
    "a\r\nb": "a\\r\\nb",
    "\x9b2J": "\\x9b2J",
    "\u202etxt.exe": "\\u202etxt.exe",
    "h\udce4": "h\\xe4",
    "\udbff": "\\udbff",
}


def test_control_characters_are_made_visible() -> None:
    assert {text: escape_unprintable(text) for text in SHOWN} == SHOWN


def test_long_words_are_cut() -> None:
    line = format_one_line(f"--show: '{'1' * 5000}' is more than 9")
    assert line.startswith("--show: '1111") and line.endswith("111' is more than 9")
    assert "1...1" in line and len(line) < 300


def test_long_lines_are_cut() -> None:
    line = format_one_line("bad: " + "a " * 5000 + "; do this")
    assert line.startswith("bad: a a") and line.endswith("; do this") and len(line) < 2100


def test_paths_stay_whole() -> None:
    path = "/a" * 120
    assert format_one_line(f"{path}: no such file") == f"{path}: no such file"


def test_no_error_echoes_all_of_what_it_quotes() -> None:
    name = "x" * 5000
    for text in (str(LaunchError(f"{name}: no such host")), host_lost("h", f"{name} said").message):
        assert len(text) < 300 and text.startswith(("xxx", "host h: xxx"))
