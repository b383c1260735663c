"""The journal: each fact is known to all who read it, in order."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from mcjax_launch.agent.part import AgentPart
from mcjax_launch.hook.part import RankPart
from mcjax_launch.journal import attempt, facts, stop_reasons
from mcjax_launch.journal.journal import Journal, get_method_name
from mcjax_launch.launcher.part import DebuggerDisplay, LauncherPart
from mcjax_launch.wire import frames, messages
from mcjax_launch.wire.value import Value

PACKAGE = Path(facts.__file__).parents[1]
OWN = [facts, attempt, stop_reasons]
NAMES = {get_method_name(frames.Data)}
# What else calls methods that begin so: parts' owners, and their own files.
ASKED = [LauncherPart, AgentPart, RankPart, DebuggerDisplay]
NAMES |= {"on_change", "on_first_import", "on_hit"}


class Happened(Value):
    number: int


class Reader:
    def __init__(self, name: str, read: list[str], journal: Journal) -> None:
        self._name, self._read, self._journal = name, read, journal

    def on_happened(self, fact: Happened, at: float) -> None:
        self._read.append(f"{self._name} {fact.number} at {at:g}")


def test_state_reads_first_and_events_last_of_the_job() -> None:
    read: list[str] = []
    journal = Journal(lambda: 5.0)
    journal.add_reader(Reader("events", read, journal))
    journal.add_reader(Reader("report", read, journal))
    for attempt_number in (1, 2):
        journal.begin_attempt(Reader(f"state {attempt_number}", read, journal))
        journal.add_to_attempt(Reader("part", read, journal))
        journal.append(Happened(attempt_number))
    assert read == [
        *("state 1 1 at 5", "report 1 at 5", "events 1 at 5", "part 1 at 5"),
        *("state 2 2 at 5", "report 2 at 5", "events 2 at 5", "part 2 at 5"),
    ]


def facts_of(module: ModuleType) -> list[str]:
    classes = inspect.getmembers(module, inspect.isclass)
    return [name for name, each in classes if each.__module__ == module.__name__]


@pytest.mark.parametrize("name", [name for module in OWN for name in facts_of(module)])
def test_fact_of_the_launcher_is_read(name: str) -> None:
    if name == "Stack":  # of what a reader asks for
        return
    reads = get_method_name(type(name, (), {}))
    assert any(f"def {reads}(" in path.read_text() for path in PACKAGE.rglob("*.py"))


def test_reader_has_no_method_for_an_unknown_fact() -> None:
    """A misspelled one would never be called."""
    kinds = [each for module in OWN for each in facts_of(module)]
    kinds += [name for name, _ in inspect.getmembers(messages, inspect.isclass)]
    known = {get_method_name(type(name, (), {})) for name in kinds} | NAMES
    known |= {name for each in ASKED for name in vars(each)}
    wrong = [
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in [PACKAGE / "journal/state.py", *(PACKAGE / "features").rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("on_")
        if node.name not in known
    ]
    assert wrong == []
