"""Cells of notebooks: how they are read, and what values have to show."""

from types import ModuleType
from typing import Any

import pytest

from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.notebook.cells import (
    Cell,
    format_failure,
    group_shown,
    prefix_lines,
    read_cell,
)
from mcjax_launch.features.notebook.magics import parse_words
from mcjax_launch.features.session.client.progress import CallFailed, RankError
from mcjax_launch.features.session.client.session import select_ranks
from mcjax_launch.features.session.hook.shown import make_bundles
from mcjax_launch.python.keywords import make_options

PLAIN = Prefixes(shown=True, colour=False)


def test_values_that_differ_by_their_address_are_equal() -> None:
    def make(rank: int) -> list[dict[str, str]]:
        return [{"text/plain": f"<T object at 0x{rank}f>"}]

    grouped = group_shown([0, 2], [make(0), make(2)])
    assert grouped == [({"text/plain": "<T object at 0x0f>"}, [0, 2])]
    assert group_shown([0, 1], [[{"text/plain": "1"}], [{"text/plain": "2"}]]) == [
        ({"text/plain": "1"}, [0]),
        ({"text/plain": "2"}, [1]),
    ]


def test_rich_data_decides_whether_values_are_equal() -> None:
    shown = [[{"text/plain": str(rank), "text/html": "<b>"}] for rank in range(2)]
    assert group_shown([0, 1], shown) == [({"text/plain": "0", "text/html": "<b>"}, [0, 1])]


def test_each_line_of_a_value_has_the_prefix() -> None:
    assert prefix_lines("a\nb", [0, 1, 3], PLAIN) == "[0-1,3] a\n[0-1,3] b\n"


def test_equal_tracebacks_are_shown_once() -> None:
    errors = [
        RankError(rank, "ValueError: no", "Traceback\nValueError: no\n", None) for rank in (0, 1)
    ]
    once = "[0-1] Traceback\n[0-1] ValueError: no\n"
    assert format_failure(CallFailed("ranks 0-1 raised ValueError: no", errors), PLAIN) == [once]
    restarted = CallFailed("gone", errors, unfinished=[2])
    assert format_failure(restarted, PLAIN) == [once, "mcjax-launch: gone\n"]


def test_frames_of_jax_are_left_out() -> None:
    traceback = """Traceback (most recent call last):
  File "<cell 1>", line 1, in <module>
    f()
    ~^^
  File "/lib/python3.13/site-packages/jax/_src/lax.py", line 7, in add
    raise TypeError("no")
TypeError: no
"""
    [shown] = format_failure(CallFailed("", [RankError(0, "", traceback, None)]), PLAIN)
    assert [line.removeprefix("[0] ") for line in shown.splitlines()] == [
        line for line in traceback.splitlines() if "lax.py" not in line and "raise" not in line
    ]


def test_ranks_of_a_cell_are_chosen() -> None:
    assert list(select_ranks(None, 3)) == [0, 1, 2]
    assert select_ranks("0,2", 3) == [0, 2]
    for wrong in ("3", "x"):
        with pytest.raises(LaunchError, match="ranks: "):
            select_ranks(wrong, 3)


# Texts of notebook cells, and what is read: as Python, with a time, or the error.
CELLS: dict[str, tuple[str, object]] = {
    "python": ("x = 1\ny", Cell("x = 1\ny")),
    "a mistake of the user's": ("x = = 1", Cell("x = = 1")),
    "await": ("await f()", Cell("await f()")),
    "%%time": ("%%time\nf()\ng()", Cell("f()\ng()\n", "time")),
    "%time": ("\n%time f()\n", Cell("", "time", "f()")),
    "%timeit": ("%timeit -n 10 -r3 f()", Cell("", "timeit", "-n 10 -r3 f()")),
    "%%timeit": ("%%timeit -n 10\nf()\n", Cell("f()\n", "timeit", "-n 10")),
    "%time in a cell of more": (
        "%time f()\ng()",
        "^%time f.*: magics.* a whole cell may be %time,",
    ),
    "a shell's command": ("x = 1\nfiles = !ls -l", "^files = !ls -l: magics, ! and .* work in the"),
    "a magic": ("%env", "^%env: magics"),
    "help": ("jax.jit?", r"^jax.jit\?: magics"),
    "a remainder": ("x = 7 %\\\n    3", Cell("x = 7 %\\\n    3")),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_python_with_times(name: str) -> None:
    transformer = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager()
    text, found = CELLS[name]
    if isinstance(found, str):
        with pytest.raises(LaunchError, match=found):
            read_cell(text, transformer.transform_cell)
    else:
        assert read_cell(text, transformer.transform_cell) == found


def read_keywords(*words: str) -> dict[str, Any]:
    return parse_words(words)[0]


def test_options_become_keywords() -> None:
    assert read_keywords("-n", "2", "-x", "A=1", "-x", "B", "-q", "--hosts", "hosts.txt") == {
        "processes": "2",
        "env": ["A=1", "B"],
        "quiet": True,
        "hosts": "hosts.txt",
    }
    env = ("A=1", "B", "C_*")
    keywords = read_keywords(*(word for value in env for word in ("-x", value)))
    assert make_options(["program"], keywords).env == env
    assert read_keywords() == {"processes": None}
    with pytest.raises(LaunchError, match="--detach is not for notebooks: the ranks stay until"):
        read_keywords("--detach")


def test_variables_of_other_commands_are_not_for_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that belongs to a single command, such as --events, is refused wherever it is set."""
    monkeypatch.setenv("MCJAX_NAME", "train")
    monkeypatch.setenv("MCJAX_GRACE", "3")
    assert read_keywords() == {"processes": None, "grace": "3"}
    with pytest.raises(LaunchError, match="--name is not for notebooks: it is for --emit"):
        read_keywords("--name", "train")
    monkeypatch.setenv("MCJAX_EVENTS", "file")
    with pytest.raises(LaunchError, match="--events is not for notebooks"):
        read_keywords()


class Rich:
    def __repr__(self) -> str:
        return "rich"

    def _repr_html_(self) -> str:
        return "<b>rich</b>"

    def _repr_png_(self) -> bytes:
        return b"png"

    def _repr_latex_(self) -> str:
        raise ValueError("the text is enough")


def test_values_show_themselves_as_in_notebooks() -> None:
    assert make_bundles(None) == []
    assert make_bundles(8) == [{"text/plain": "8"}]
    assert make_bundles(Rich()) == [
        {"text/plain": "rich", "text/html": "<b>rich</b>", "image/png": "cG5n"}
    ]
    assert make_bundles(Rich) == [{"text/plain": repr(Rich)}]


def test_open_figures_are_shown_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Figure:
        number = 1
        axes = ("one",)

        def __repr__(self) -> str:
            return "figure"

        def savefig(self, file: Any, **options: object) -> None:
            file.write(b"png")

    figure = Figure()
    closed: list[Figure] = []
    pyplot: Any = ModuleType("matplotlib.pyplot")
    pyplot.get_fignums = lambda: [1]
    pyplot.figure = lambda number: figure
    pyplot.close = closed.append
    pyplot.fignum_exists = lambda number: not closed
    figures: Any = ModuleType("matplotlib.figure")
    figures.Figure = Figure
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", pyplot)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", figures)
    assert make_bundles(figure) == [{"text/plain": "figure", "image/png": "cG5n"}]
    assert closed == [figure]
    pyplot.get_fignums = list
    assert make_bundles(figure) == [{"text/plain": "figure", "image/png": "cG5n"}]
