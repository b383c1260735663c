"""Runs of cells in the ranks of a session, whose output is shown meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from mcjax_launch.api.call_failed import CallFailed
from mcjax_launch.api.events import Event, Line
from mcjax_launch.api.session import Session, select_ranks
from mcjax_launch.cells.folding import Bundle, Folding, Printed, group_shown, prefix_lines
from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.errors import LaunchError
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

    The session's calls are made in a thread: the main thread prints what arrives, as notebooks
    and Ctrl-C want it.

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
        self._arrived: SimpleQueue[Line | Event | None] = SimpleQueue()
        self._prefixes = prefixes
        self._is_awaiting = self._is_closing = False
        own = {"echo": False, "on_line": self._arrived.put, "on_event": self._add_event}
        try:
            self.session = Session({**keywords, **own}, initialize=True, argv=argv)
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
        shown = self._await(lambda: self.session.show(source, chosen, name), len(chosen))
        return group_shown(chosen, shown)

    def complete(self, text: str) -> list[str]:
        """Return names and attributes in the first rank that begin with a text."""
        if not text or self._is_awaiting:
            return []
        try:
            found = self.session.exec(_COMPLETE.format(text=text), 0)[0]
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
        self._is_closing = not self.is_over
        self._await(self.session.close)

    def _await(self, call: Callable[[], Any], ranks: int | None = None) -> Any:
        """Make a call of the session in a thread; print what arrives until it is over.

        Args:
            call: the call.
            ranks: number of ranks that print; None for all.

        """
        folding = Folding(ranks or self.session.processes, self._prefixes)
        outcome: list[Any] = []
        errors: list[BaseException] = []

        def make() -> None:
            try:
                outcome.append(call())
            except BaseException as error:
                errors.append(error)
            finally:
                self._arrived.put(None)

        self._is_awaiting = True
        threading.Thread(target=make, name="mcjax-launch cell", daemon=True).start()
        while self._is_awaiting:
            try:
                self._is_awaiting = not self._print_next(folding)
            except KeyboardInterrupt:
                self.session.interrupt()
        self._print(folding.flush(time.monotonic()))
        if errors:
            raise errors[0]
        return outcome[0]

    def _print_next(self, folding: Folding) -> bool:
        """Print what arrives next, or has waited long enough; return True if the call is over."""
        deadline = folding.deadline
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            arrived = self._arrived.get(timeout=wait_s)
        except Empty:
            self._print(folding.expire(time.monotonic()))
            return False
        if isinstance(arrived, Line):
            self._print(folding.feed(arrived, time.monotonic()))
        elif isinstance(arrived, Event) and arrived.rank is not None:
            self._print(folding.end_job(arrived.rank, time.monotonic()))
        elif isinstance(arrived, Event):
            print_line(Printed(self._prefixes.format_own_line(arrived.text), True))
        return arrived is None

    def _add_event(self, event: Event) -> None:
        """Queue lines and ends, but not of a regular end; called in the job's thread."""
        if event.kind in ("note", "ended") and not self._is_closing:
            self._arrived.put(event)

    def _print(self, lines: Sequence[Printed]) -> None:
        for line in lines:
            print_line(line)


def print_line(line: Printed) -> None:
    """Print a line, with its newline, to standard output or error."""
    print(line.text, end="", file=sys.stderr if line.is_error else sys.stdout, flush=True)


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
