"""Results as Markdown, and their place in a file of the docs; pure."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.measure import Grid, Measure, Result, Spread


def markdown(results: Mapping[str, Sequence[Result]], machine: Mapping[str, str]) -> str:
    """Return a table for each benchmark, below a line about the machine."""
    what = "; ".join(f"{name}: {value}" for name, value in machine.items() if value)
    parts = [textwrap.fill(f"Measured in turn. {what}.", 110)]
    for name, found in results.items():
        if measures := [item for item in found if isinstance(item, Measure)]:
            parts.append("\n".join(_measures(name, measures)))
        parts += ["\n".join(_grid(item)) for item in found if isinstance(item, Grid)]
    return "\n\n".join(parts) + "\n"


def _measures(name: str, measures: Sequence[Measure]) -> Iterator[str]:
    ways = list(dict.fromkeys(way for measure in measures for way in measure.values))
    yield f"| {name}: median; {measures[0].base} / this | {' | '.join(ways)} |"
    yield "|---" * (len(ways) + 1) + "|"
    for measure in measures:
        yield f"| {measure.title} | {' | '.join(_cell(measure, way) for way in ways)} |"


def _cell(measure: Measure, way: str) -> str:
    if way not in measure.values:
        return ""
    median = f"{number(Spread.of(measure.values[way]).median)} {measure.unit}"
    return _ratio(measure.ratio(way)) or median


def _ratio(ratio: Spread | None) -> str:
    if ratio is None:
        return ""
    if ratio.low == ratio.high:
        return f"{number(ratio.median)}"
    return f"{number(ratio.median)} ({number(ratio.low)}-{number(ratio.high)})"


def _grid(grid: Grid) -> Iterator[str]:
    columns = grid.columns
    yield f"| {grid.title} | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for name, row in grid.cells.items():
        yield f"| {name} | {' | '.join(row.get(column, '') for column in columns)} |"


def number(value: float) -> str:
    """With as many digits as mean something: 1234, 123, 12.3, 1.23, 0.12."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def put_into(page: str, tables: str, writer: str) -> str:
    """Return a page with these tables between the marks of the script that writes them.

    Raises:
        ValueError: the page has no marks.

    """
    begin, end = f"<!-- {writer} -->", f"<!-- /{writer} -->"
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"no lines {begin} and {end}")
    return f"{before}{begin}\n\n{tables}\n{end}{after}"
