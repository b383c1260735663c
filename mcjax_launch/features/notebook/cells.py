"""Cells of a notebook: how they are read, how output is printed meanwhile, and what is shown."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, NamedTuple, TextIO

from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.client.progress import CallFailed
from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.source_lines import is_jax

#: Texts by MIME type, and pictures in base64.
Bundle = Mapping[str, str]
#: The type that each bundle has.
PLAIN = "text/plain"

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FRAME = '  File "'  # begins a frame in a traceback
_AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST


# --- the text ---


class Cell(NamedTuple):
    """Cell for ranks.

    Args:
        source: Python code.
        timed: magic of IPython that the cell is; "" for none.
        line: what follows `%%timeit` in its line, or else "".

    """

    source: str
    timed: str = ""
    line: str = ""


def read_cell(text: str, transform: Callable[[str], str]) -> Cell:
    """Return a cell's Python code, and how it is timed.

    Args:
        text: the cell.
        transform: IPython's transformation of cells, which makes Python calls of magics.

    Raises:
        LaunchError: it has a line that only IPython reads.

    """
    try:
        tree: Any = compile(transform(text), "", "exec", _AWAITS)
    except (SyntaxError, ValueError):  # the ranks tell it; ValueError: a null byte
        return Cell(text)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    magic = next((call for call in calls if _is_magic(call)), None)
    if magic is None:
        return Cell(text)
    name, *words = (getattr(argument, "value", "") for argument in magic.args)
    if name in ("time", "timeit") and len(tree.body) == 1 and tree.body[0].value is magic:
        if magic.func.attr == "run_line_magic":
            return Cell("", name, words[0])
        return Cell(words[1], name, words[0])
    line = text.strip("\n").splitlines()[magic.lineno - 1].strip()
    raise LaunchError(
        f"{line}: magics, ! and ? work in the notebook's own process, without %%mcjax; in ranks, "
        "a whole cell may be %time, %%time, %timeit or %%timeit"
    )


def _is_magic(call: Any) -> bool:
    """Return whether a call is of a method of get_ipython()."""
    shell = getattr(call.func, "value", None)
    return isinstance(shell, ast.Call) and getattr(shell.func, "id", "") == "get_ipython"


# --- output while ranks run ---


class Output:
    """Output of ranks, which arrives in a job's thread.

    The main thread prints it, as notebooks and Ctrl-C want it; calls are made in a thread.

    Attributes:
        streams: functions that return the streams for standard output and error.

    """

    def __init__(self) -> None:
        self._arrived: SimpleQueue[tuple[str, TextIO] | Future[Any]] = SimpleQueue()
        self.streams = tuple(map(self._make_getter, (False, True)))

    def _make_getter(self, is_error: bool) -> Callable[[], TextIO]:
        def write(text: str) -> int:
            self._arrived.put((text, sys.stderr if is_error else sys.stdout))
            return len(text)

        stream: Any = SimpleNamespace(write=write, flush=lambda: None)
        return lambda: stream

    def print_during(self, call: Callable[[], Any], interrupt: Callable[[], object]) -> Any:
        """Make a call in a thread, and return what it returns; print what arrives meanwhile.

        Args:
            call: the call, of which what it raises is raised here.
            interrupt: called at each Ctrl-C.

        """
        made: Future[Any] = Future()

        def make() -> None:
            try:
                made.set_result(call())
            except BaseException as error:
                made.set_exception(error)
            self._arrived.put(made)

        threading.Thread(target=make, name="mcjax-launch cell", daemon=True).start()
        arrived: object = None
        while arrived is not made:
            try:
                arrived = self._arrived.get()
                if isinstance(arrived, tuple):
                    print(arrived[0], end="", file=arrived[1], flush=True)
            except KeyboardInterrupt:
                interrupt()
                arrived = made if made.done() else None
        return made.result()


# --- what is shown ---


def prefix_lines(text: str, ranks: Sequence[int], prefixes: Prefixes) -> str:
    """Return a text with the prefix of ranks before each line, and with a newline."""
    prefix = prefixes.format_shared_prefix(ranks).decode()
    return "".join(f"{prefix}{line}\n" for line in text.split("\n"))


def group_shown(
    ranks: Sequence[int], shown: Sequence[Sequence[Bundle]]
) -> list[tuple[Bundle, list[int]]]:
    """Return what ranks have to show, equal things once with their ranks, in order of rank.

    Args:
        ranks: the ranks.
        shown: what each of them has to show.

    """
    pairs = [
        ((place, _make_key(bundle)), (rank, bundle))
        for rank, bundles in zip(ranks, shown, strict=True)
        for place, bundle in enumerate(bundles)
    ]
    groups = group_by_key(pairs).values()
    return [(group[0][1], [rank for rank, _ in group]) for group in groups]


def _make_key(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    """Return what two ranks show alike if their values are equal: all but addresses in memory."""
    rich = {mime: data for mime, data in bundle.items() if mime != PLAIN}
    return tuple(sorted(rich.items())) or ((PLAIN, _ADDRESS.sub("", bundle[PLAIN])),)


def format_failure(error: CallFailed, prefixes: Prefixes) -> list[str]:
    """Return lines about a cell that has failed: equal tracebacks once, and what was restarted."""
    groups = group_by_key((_drop_jax(each.traceback), each.rank) for each in error.errors)
    lines = [prefix_lines(text.rstrip("\n"), ranks, prefixes) for text, ranks in groups.items()]
    if error.restarted:
        lines.append(prefixes.format_own_line(str(error)))
    return lines


def _drop_jax(traceback: str) -> str:
    """Return a traceback without JAX's frames: lines `  File "..."` and what is below each."""
    kept: list[str] = []
    is_dropped = False
    for line in traceback.splitlines(keepends=True):
        if not line.startswith("    "):
            is_dropped = line.startswith(_FRAME) and is_jax(line.split('"')[1])
        if not is_dropped:
            kept.append(line)
    return "".join(kept)
