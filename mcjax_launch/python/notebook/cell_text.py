"""Texts of cells: Python, with IPython's words for times; pure."""

from __future__ import annotations

import ast
import re
from typing import Literal, NamedTuple

from mcjax_launch.errors import LaunchError

_TIMED = re.compile(
    r"\s*(?P<marks>%%?)(?P<word>timeit|time)\b(?P<options>( +-[nr] ?\d+)*) *(?P<rest>.*)\n?"
)
_HERE = "without %%mcjax, here"


class CellText(NamedTuple):
    """Text of a cell for ranks.

    Args:
        source: Python code.
        timed: word of IPython that the text began with; "" for none.
        number: runs in a loop, as `%timeit -n` gives it; 0 to find out.
        repeat: loops.

    """

    source: str
    timed: Literal["", "time", "timeit"] = ""
    number: int = 0
    repeat: int = 7


def read_cell(text: str) -> CellText:
    """Return a cell's Python code, and how it is timed.

    Raises:
        LaunchError: it has a line that only IPython reads.

    """
    cell = _split_time(text)
    try:
        compile(cell.source, "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    except SyntaxError as error:  # the ranks tell it, if it is Python's
        lines = cell.source.splitlines()
        number = error.lineno or 0
        if 0 < number <= len(lines) and (why := _explain_line(lines[number - 1].strip())):
            raise LaunchError(why) from None
    except ValueError:  # a null byte
        pass
    return cell


def _split_time(text: str) -> CellText:
    found = _TIMED.match(text)
    if found is None:
        return CellText(text)
    body, is_cells = text[found.end() :], found["marks"] == "%%"
    if bool(found["rest"]) == is_cells or (not is_cells and body.strip()):
        raise LaunchError(
            f"%{found['word']}: give it one statement in its line, and nothing else in the cell; "
            f"or begin the cell with %%{found['word']}"
        )
    given = dict(re.findall(r"-([nr]) ?(\d+)", found["options"]))
    return CellText(
        body if is_cells else found["rest"],
        "timeit" if found["word"] == "timeit" else "time",
        int(given.get("n", 0)),
        max(1, int(given.get("r", 7))),
    )


def _explain_line(line: str) -> str:
    """Return what to write instead of a line of IPython's; "" for other lines."""
    if shell := re.match(r"(?:[\w, ]+=\s*)?!+\s*(.+)", line):
        run = f"import subprocess; subprocess.run({shell[1]!r}, shell=True)"
        return f"{line}: ! works {_HERE}; in ranks write {run}"
    if magic := re.match(r"(?:[\w, ]+=\s*)?(%%?\w+)", line):
        return f"{magic[1]}: magics work {_HERE}; in ranks only %%time and %timeit do"
    if asked := re.fullmatch(r"\?{0,2}([\w.]+)\?{0,2}", line):
        return f"{line}: write help({asked[1]})"
    return ""


def format_duration(seconds: float) -> str:
    """Return a duration with three digits, as `1.23 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
