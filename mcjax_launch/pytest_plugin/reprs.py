"""Representations of failures: pytest's own classes, because all its outputs accept them."""

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


def make_repr(name: str, words: str, location: tuple[str, int | None, str]) -> ExceptionChainRepr:
    """Return the representation of a failure for which no rank has a traceback.

    Args:
        name: text shown in place of an exception's name.
        words: description of the failure, in one line.
        location: location of the test: file, line from 0, name.

    """
    path, line, _ = location
    number = (line or 0) + 1
    entry = ReprEntry([f"E   {words}"], None, None, ReprFileLocation(path, number, name), "long")
    text = ReprTraceback([entry], None, style="long")
    return ExceptionChainRepr([(text, ReprFileLocation(path, number, words), None)])


def with_sections(longrepr: Any, sections: Sequence[tuple[str, Sequence[str]]]) -> Any:
    """Return the representation of a failure with sections added, each under its name."""
    if isinstance(longrepr, ExceptionRepr):
        for name, lines in sections:
            if lines:
                longrepr.addsection(name, "\n".join(lines), "-")
        return longrepr
    text = [f"{name}:\n" + "\n".join(lines) for name, lines in sections if lines]
    return "\n".join([str(longrepr), *text])


def name_ranks(longrepr: Any, ranks: str) -> None:
    """Put ranks before the message shown in the short summary and in JUnit's file."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"{ranks}: {crash.message}"


def get_message(report: pytest.TestReport) -> str:
    """Return a report's message on its failure or skip, without the traceback."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr or "")


def get_headline(report: pytest.TestReport) -> str:
    """Return the first line of a report's message."""
    return (get_message(report).strip().splitlines() or [""])[0]


def format_position(report: pytest.TestReport) -> str:
    """Return the position of a failure or skip, as `test_it.py:12`; "" if unknown."""
    if isinstance(report.longrepr, tuple):
        return f"{report.longrepr[0]}:{report.longrepr[1]}"
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.path}:{crash.lineno}" if crash is not None else ""
