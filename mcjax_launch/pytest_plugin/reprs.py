"""How a failure is shown: pytest's own representations, so that each of its outputs takes them."""

from collections.abc import Sequence
from typing import Any

import pytest
from _pytest._code.code import (
    ExceptionChainRepr,
    ExceptionRepr,
    ReprEntry,
    ReprFileLocation,
    ReprTraceback,
)


def of_words(name: str, words: str, location: tuple[str, int | None, str]) -> ExceptionChainRepr:
    """A failure that no rank has a traceback of.

    Args:
        name: stands where the name of an exception does.
        words: what happened, in one line.
        location: of the test.

    """
    path, line, _ = location
    number = (line or 0) + 1
    entry = ReprEntry([f"E   {words}"], None, None, ReprFileLocation(path, number, name), "long")
    text = ReprTraceback([entry], None, style="long")
    return ExceptionChainRepr([(text, ReprFileLocation(path, number, words), None)])


def with_sections(longrepr: Any, sections: Sequence[tuple[str, Sequence[str]]]) -> Any:
    """The representation of a failure with more below it, each part under its name."""
    if isinstance(longrepr, ExceptionRepr):
        for name, lines in sections:
            if lines:
                longrepr.addsection(name, "\n".join(lines), "-")
        return longrepr
    text = [f"{name}:\n" + "\n".join(lines) for name, lines in sections if lines]
    return "\n".join([str(longrepr), *text])


def name_ranks(longrepr: Any, ranks: str) -> None:
    """Put the ranks before the message that stands in the short summary and in JUnit's file."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"{ranks}: {crash.message}"


def message(report: pytest.TestReport) -> str:
    """What a report says of a failure, or of a skip, without its traceback."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr or "")


def headline(report: pytest.TestReport) -> str:
    """The first line of that."""
    return (message(report).strip().splitlines() or [""])[0]


def place(report: pytest.TestReport) -> str:
    """Where it happened, as `test_it.py:12`; empty where that is not known."""
    if isinstance(report.longrepr, tuple):
        return f"{report.longrepr[0]}:{report.longrepr[1]}"
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.path}:{crash.lineno}" if crash is not None else ""
