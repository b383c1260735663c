"""Mark `mcjax`: reading and checking of its arguments."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from mcjax_launch.options import kinds

NAME = "mcjax"
#: Under this name a rank's plugin is registered before the others are configured.
IN_RANK = "mcjax-in-rank"
_PARAMETER = "_mcjax_processes"
# Options that ranks cannot have, by pytest's internal names.
_REFUSED = {"usepdb": "--pdb", "trace": "--trace", "setuponly": "--setup-only"}
# Arguments of the mark; each takes the same values as the command's option.
_KINDS = {
    "processes": kinds.ONE_OR_MORE,
    "cpu_devices": kinds.ONE_OR_MORE,
    "slices": kinds.SLICES,
    "timeout": kinds.DURATION,
    "compile_once": kinds.make_choice_kind("auto", "on", "off"),
}


class WrongMark(Exception):
    """Error: the marks of a test are wrong; the text says what to write instead."""


class Shape(NamedTuple):
    """Properties of a group of ranks; tests of the same shape share a group."""

    processes: int
    cpu_devices: int
    slices: str | int = "auto"
    compile_once: str = "auto"

    @property
    def command(self) -> str:
        """Start of a command that runs a program in ranks of this shape."""
        slices = "" if self.slices == "auto" else f" --slices {self.slices}"
        once = "" if self.compile_once == "auto" else f" --compile-once {self.compile_once}"
        return f"mcjax-launch -n {self.processes} -d {self.cpu_devices}{slices}{once}"


class Marked(NamedTuple):
    """Content of a test's marks.

    Args:
        shape: shape of the group that runs the test.
        timeout_s: time limit of the test, in seconds; None if the marks set no limit.

    """

    shape: Shape
    timeout_s: float | None


def find(item: pytest.Item) -> Marked | None:
    """Return the content of a test's `mcjax` marks; None without any, or if they are wrong."""
    try:
        return read(item)
    except WrongMark:
        return None


def read(item: pytest.Item) -> Marked | None:
    """Return the content of a test's `mcjax` marks; None without such marks.

    Raises:
        WrongMark: the marks are wrong.

    """
    marks = list(item.iter_markers(NAME))
    if not marks:
        return None
    given = _merge_marks(marks)
    callspec = getattr(item, "callspec", None)
    if callspec is not None and _PARAMETER in callspec.params:
        given["processes"] = callspec.params[_PARAMETER]
    elif isinstance(given.get("processes"), list | tuple):
        if not given["processes"]:
            raise WrongMark("mcjax(processes=[]): how many? write mcjax(processes=[1, 2])")
        why = "this is a unittest method, or the mark was added after the collection"
        what = f"a list parametrizes functions; give one number here ({why})"
        raise WrongMark(f"mcjax(processes=...): {what}")
    return _parse_arguments(given)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make one test for each number of processes, if the mark gives a list of them."""
    try:
        processes = _merge_marks(metafunc.definition.iter_markers(NAME)).get("processes")
    except WrongMark:  # reported when the test runs
        return
    if isinstance(processes, list | tuple) and processes:
        metafunc.fixturenames.append(_PARAMETER)
        metafunc.parametrize(_PARAMETER, processes, ids=[f"{n}-processes" for n in processes])


def _merge_marks(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """Return the arguments of all marks; those of earlier marks, closer to the test, win."""
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise WrongMark(f"mcjax takes names: write mcjax(processes={mark.args[0]!r})")
        given = {**mark.kwargs, **given}
    return given


def _parse_arguments(given: Mapping[str, Any]) -> Marked:
    values: dict[str, Any] = {"cpu_devices": 1, "slices": "auto", "compile_once": "auto"}
    for name, value in given.items():
        if name not in _KINDS:
            raise WrongMark(f"mcjax({name}=...): it takes {', '.join(_KINDS)}")
        if value is not None:
            try:
                values[name] = _KINDS[name].read(value)
            except ValueError as error:
                raise WrongMark(f"mcjax({name}={value!r}): {error}") from None
    if "processes" not in values:
        raise WrongMark("mcjax(): how many? write mcjax(processes=2)")
    processes, slices = values["processes"], values["slices"]
    try:
        kinds.check_slices(slices, processes)
    except ValueError as error:
        raise WrongMark(f"mcjax(slices={slices!r}): {error}") from None
    shape = Shape(processes, values["cpu_devices"], slices, values["compile_once"])
    return Marked(shape, values.get("timeout"))


def check_options(options: object, items: Sequence[pytest.Item]) -> None:
    """Check that no option of pytest is given that does not work for marked tests.

    Raises:
        pytest.UsageError: such an option is given, and a test is marked.

    """
    found = [(item, marked) for item in items if (marked := find(item)) is not None]
    for name, option in _REFUSED.items():
        if found and getattr(options, name, False) and not getattr(options, "collectonly", False):
            item, marked = found[0]
            raise pytest.UsageError(
                f"{option} does not reach the ranks of tests marked mcjax: leave them out with "
                f"-m 'not mcjax', or run pytest itself in the ranks, one shape at a time: "
                f"{marked.shape.command} -m pytest {option} {item.nodeid}"
            )
