"""Runs of cells in the ranks of a session, whose output is shown meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from io import StringIO
from queue import SimpleQueue
from typing import Any, TextIO

from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.errors import LaunchError
from mcjax_launch.python.call_failed import CallFailed
from mcjax_launch.python.cells.folding import Bundle, group_shown, prefix_lines
from mcjax_launch.python.session import Session, select_ranks
from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.source_lines import is_jax

# Begins a frame in a traceback.
_FRAME = '  File "'
# Completes a name as Python's own prompt does.
_COMPLETE = (
    "(lambda made, text: (made.attr_matches if '.' in text else made.global_matches)(text))"
    "(__import__('rlcompleter').Completer(globals()), {text!r})"
)


class CellRunner:
    """Ranks that run cells.

    The launcher folds equal lines of ranks. The session's calls are made in a thread: the main
    thread prints what arrives, as notebooks and Ctrl-C want it.

    Args:
        keywords: keywords of `session`.
        prefixes: style of the prefixes of lines.
        argv: `sys.argv[1:]` of the ranks, in which placeholders are filled in.

    Raises:
        LaunchError: the ranks could not be started, or sessions do not have an option.

    """

    def __init__(
        self,
        keywords: Mapping[str, Any],
        prefixes: Prefixes,
        argv: Sequence[str] = (),
    ) -> None:
        self._arrived: SimpleQueue[tuple[str, bool] | Future[Any]] = SimpleQueue()
        shown = {"collapse": "always", **keywords} if prefixes.shown else keywords
        streams = [_Stream(self._arrived.put, is_error) for is_error in (False, True)]
        own = {
            "echo": tuple(map(_make_getter, streams)),
            "no_prefix": not prefixes.shown,
            "color": "always" if prefixes.colour else "never",
        }
        try:
            self.session = Session({**shown, **own}, initialize=True, argv=argv)
        except TypeError as error:  # a keyword is refused
            raise LaunchError(str(error)) from None

    def begin(self) -> None:
        """Wait until the ranks can run cells.

        Raises:
            LaunchError: the ranks have failed before.

        """
        self._await(self.session.__enter__)

    def run(
        self, source: str, ranks: str = "", name: str | None = None
    ) -> list[tuple[Bundle, list[int]]]:
        """Run a cell; return what ranks have to show, equal things once with their ranks.

        Args:
            source: Python code.
            ranks: ranks that run it, as `0,2-3`; "" for all.
            name: stands in place of a file in tracebacks; None for a number.

        Raises:
            CallFailed: ranks have raised exceptions, such as KeyboardInterrupt after Ctrl-C.
            LaunchError: there is no such rank, or the ranks have ended.

        """
        chosen = select_ranks(ranks or None, self.session.processes)
        shown = self._await(lambda: self.session.show(source, chosen, name=name))
        return group_shown(chosen, shown)

    def run_in_one(self, source: str, rank: int) -> tuple[list[Bundle], list[Any]]:
        """Run a cell in one rank; see `Session.show_one`.

        Raises: as `run`.

        """
        shown: tuple[list[Bundle], list[Any]] = self._await(
            lambda: self.session.show_one(source, rank)
        )
        return shown

    def evaluate(
        self,
        source: str,
        ranks: str = "",
        *,
        name: str,
        values: Mapping[str, object] | None = None,
    ) -> list[Any]:
        """Run a text that no user has typed; return its values in order of rank.

        Args:
            source: Python code.
            ranks: see `run`.
            name: stands in place of a file in tracebacks.
            values: values to give names there first.

        Raises: as `run`.

        """
        found: list[Any] = self._await(
            lambda: self.session.exec(source, ranks or None, name=name, values=values)
        )
        return found

    def complete(self, text: str) -> list[str]:
        """Return names and attributes in the first rank that begin with a text."""
        if not text:
            return []
        source = _COMPLETE.format(text=text)
        try:
            found = self.session.exec(source, 0, name="<completion>")[0]
        except LaunchError:
            return []
        return list(found) if isinstance(found, list) else []

    @property
    def is_over(self) -> bool:
        """True if the ranks have ended."""
        return self.session.is_over

    def restart(self) -> None:
        """Start the ranks again, without their state.

        Raises:
            LaunchError: the ranks could not be started.

        """
        self._await(self.session.restart)

    def close(self) -> None:
        """End the ranks, and print what they print at their end."""
        self._await(self.session.close)

    def _await(self, call: Callable[[], Any]) -> Any:
        """Make a call of the session in a thread; print what arrives until it is over."""
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
                    print_lines(*arrived)
            except KeyboardInterrupt:
                self.session.interrupt()
                arrived = made if made.done() else None
        return made.result()


def _make_getter(stream: TextIO) -> Callable[[], TextIO]:
    return lambda: stream


class _Stream(StringIO):
    """Text stream that hands on what is written to it."""

    def __init__(self, add: Callable[[tuple[str, bool]], object], is_error: bool) -> None:
        super().__init__()
        self._add, self._is_error = add, is_error

    def write(self, text: str, /) -> int:
        self._add((text, self._is_error))
        return len(text)


def print_lines(text: str, is_error: bool) -> None:
    """Print lines, with their newlines, to standard output or error."""
    print(text, end="", file=sys.stderr if is_error else sys.stdout, flush=True)


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


def format_failure(error: CallFailed, prefixes: Prefixes) -> list[str]:
    """Return lines about a cell that has failed: equal tracebacks once, and what was restarted."""
    groups = group_by_key((_drop_jax(each.traceback), each.rank) for each in error.errors)
    lines = [prefix_lines(text.rstrip("\n"), ranks, prefixes) for text, ranks in groups.items()]
    if error.restarted:
        lines.append(prefixes.format_own_line(str(error)))
    return lines
