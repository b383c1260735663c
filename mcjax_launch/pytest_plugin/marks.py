"""The mark `mcjax`: what it says of a test, and what is wrong with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from mcjax_launch.options import kinds
from mcjax_launch.ranks import MOST_RANKS, counted

NAME = "mcjax"
_PARAMETER = "_mcjax_processes"
_KNOWN = ("processes", "cpu_devices", "slices", "timeout")


@dataclass(frozen=True)
class Shape:
    """What tests that share a group of ranks have in common."""

    processes: int
    cpu_devices: int
    slices: str | int = "auto"

    def __str__(self) -> str:
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        slices = "" if self.slices == "auto" else f", slices={self.slices}"
        return f"{processes} with {counted(self.cpu_devices, 'CPU device')} each{slices}"

    @property
    def options(self) -> list[str]:
        """The options of a job of this shape."""
        slices = [] if self.slices == "auto" else ["--slices", str(self.slices)]
        return ["-n", str(self.processes), "-d", str(self.cpu_devices), *slices]

    @property
    def command(self) -> str:
        """What runs a program in ranks of this shape."""
        return " ".join(["mcjax-launch", *self.options])


@dataclass(frozen=True)
class Marked:
    """What the marks of a test say.

    Args:
        timeout_s: of the mark; None if it has none.

    """

    shape: Shape
    timeout_s: float | None


def read(item: pytest.Item) -> Marked | None:
    """What the marks of a test say; None if it has none of ours.

    Raises:
        pytest.UsageError: they make no sense.

    """
    marks = list(item.iter_markers(NAME))
    if not marks:
        return None
    given = _merged(marks, item.nodeid)
    callspec = getattr(item, "callspec", None)
    if callspec is not None and _PARAMETER in callspec.params:
        given["processes"] = callspec.params[_PARAMETER]
    elif isinstance(given.get("processes"), list | tuple):
        raise pytest.UsageError(
            f"{item.nodeid}: mcjax(processes=...): a list parametrizes functions; give one number "
            "here (this is a unittest method, or the mark was added after the collection)"
        )
    return _checked(given, item.nodeid)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """One test for each number of processes, if the mark gives a list of them."""
    marks = list(metafunc.definition.iter_markers(NAME))
    processes = _merged(marks, metafunc.definition.nodeid).get("processes") if marks else None
    if isinstance(processes, list | tuple):
        if not processes:
            raise pytest.UsageError(
                f"{metafunc.definition.nodeid}: mcjax(processes=[]): how many? "
                "write mcjax(processes=[1, 2])"
            )
        metafunc.fixturenames.append(_PARAMETER)
        metafunc.parametrize(_PARAMETER, processes, ids=[f"{n}-processes" for n in processes])


def _merged(marks: Iterable[pytest.Mark], nodeid: str) -> dict[str, Any]:
    """The arguments of all marks, of which the first is the closest to the test."""
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise pytest.UsageError(
                f"{nodeid}: mcjax takes names: write mcjax(processes={mark.args[0]!r})"
            )
        given = {**mark.kwargs, **given}
    return given


def _checked(given: Mapping[str, Any], nodeid: str) -> Marked:
    unknown = [name for name in given if name not in _KNOWN]
    if unknown:
        raise pytest.UsageError(f"{nodeid}: mcjax({unknown[0]}=...): it takes {', '.join(_KNOWN)}")
    if "processes" not in given:
        raise pytest.UsageError(f"{nodeid}: mcjax(): how many? write mcjax(processes=2)")
    for name in ("processes", "cpu_devices"):
        value = given.get(name, 1)
        if type(value) is not int or not 1 <= value <= MOST_RANKS:
            raise pytest.UsageError(
                f"{nodeid}: mcjax({name}={value!r}): not a whole number of 1 or more"
            )
    timeout = given.get("timeout")
    if timeout is not None and (type(timeout) not in (int, float) or timeout < 0):
        raise pytest.UsageError(f"{nodeid}: mcjax(timeout={timeout!r}): not a number of seconds")
    slices = _slices(given.get("slices", "auto"), given["processes"], nodeid)
    return Marked(Shape(given["processes"], given.get("cpu_devices", 1), slices), timeout)


def _slices(value: Any, processes: int, nodeid: str) -> str | int:
    try:
        slices: str | int = kinds.slices(value)
        kinds.check_slices(slices, processes)
    except ValueError as error:
        raise pytest.UsageError(f"{nodeid}: mcjax(slices={value!r}): {error}") from None
    return slices
