"""Display of a detached job's events on the console of an attached terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcjax_launch.console.console import Console
from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.detached.journal import SCREEN
from mcjax_launch.kernel.wire.codec import Malformed
from mcjax_launch.kernel.wire.frames import STDERR, STDOUT
from mcjax_launch.kernel.wire.hook_messages import Failed
from mcjax_launch.runs.rank_run import Verdict

_STREAMS = {"stdout": STDOUT, "stderr": STDERR}
# Of a line, or a progress bar, that has begun before the first event that is shown.
_MOST_BEGUN = 4096
_SUMMARIES = ("summary", "alarm")


class Screen:
    """Display of events, as the launcher would have shown them on this terminal.

    Args:
        make_console: function that makes a console on the terminal; called for each attempt.

    Attributes:
        console: console of the attempt that is shown.

    """

    def __init__(self, make_console: Callable[[], Console]) -> None:
        self.console = make_console()
        self._make_console = make_console
        self._ranks: list[object] = []  # that the console knows
        self._failed: list[int] = []  # ranks, whose last lines the next summary quotes,
        self._without_quote: list[str] = []  # and that summary without them
        # By rank and stream: an unfinished line of which nothing has been shown.
        self._begun: dict[tuple[object, object], str] = {}

    def show_tail(self, written: Iterable[bytes], rows: int) -> None:
        """Show about the last `rows` rows of events.

        Earlier events are not shown; their changes to the console's state are applied.

        Args:
            written: events, each a line of JSON.
            rows: number of rows to show.

        """
        events = [event for line in written if (event := _parse_event(line)) is not None]
        first, left = len(events), rows
        while first and left > 0:
            first -= 1
            left -= _count_rows(events[first])
        for event in events[:first]:
            if event["event"] in (SCREEN, "restart"):
                self._show(event)
            elif event["event"] == "output":
                rest = self._pop_whole(event).rpartition("\n")[2]
                self._begun[event["rank"], event["stream"]] = rest[-_MOST_BEGUN:]
        for event in events[first:]:
            if left < 0 and event["event"] == "output":
                event["text"] = "\n".join(self._pop_whole(event).split("\n")[-left:])
            left = 0  # only the first event may have too many lines
            self.console.set_stamp_time(event.get("time"))
            self._show(event)
        self.console.set_stamp_time(None)

    def show(self, lines: Iterable[bytes]) -> None:
        """Show further events, each a line of JSON."""
        for line in lines:
            if (event := _parse_event(line)) is not None:
                self._show(event)

    def _show(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"event": "output", "rank": int(rank), "stream": stream, "text": str()}:
                data = self._pop_whole(event).encode("utf-8", "surrogateescape")
                self.console.feed(rank, _STREAMS.get(stream, STDOUT), data)
            case {"event": "note", "text": str(text), "level": level}:
                self._note(text, level)
            case {"event": "restart", "rank": None}:
                self.console, self._ranks, self._begun = self._make_console(), [], {}
            case {"event": "summary", "message": str(message)} if "ranks" not in event:
                self.console.say(message)
            case {"event": "screen"}:
                self._call(event)

    def _pop_whole(self, event: Mapping[str, Any]) -> str:
        """Return an output event's text, behind the beginning of its line if not shown yet."""
        begun = self._begun.pop((event["rank"], event["stream"]), "")
        return begun + str(event["text"])

    def _note(self, text: str, level: object) -> None:
        if level in _SUMMARIES:
            is_seen = any(map(self.console.is_on_screen, self._failed))
            lines = self._without_quote if is_seen else text.split("\n")
            self.console.show_summary(lines, alarm=level == "alarm")
        elif level == "note":
            self.console.note(text)
        elif level == "detail":
            self.console.show_detail(text)
        else:
            self.console.say(text)

    def _call(self, event: Mapping[str, Any]) -> None:
        """Repeat a recorded call of the launcher's console on this console."""
        console = self.console
        match event.get("call"), event.get("values"):
            case "add_ranks", [list(ranks)] if ranks != self._ranks:  # each file begins with them
                self._ranks = ranks
                console.add_ranks([RankLabel(rank, host) for rank, host in ranks], append=True)
            case "set_verdict", [int(rank), verdict, failure]:
                console.set_verdict(rank, _parse_verdict(verdict), _parse_failure(failure))
            case "fold_victims", [bool(own_term)]:
                console.fold_victims(own_term=own_term)
            case "fails", [int(rank), str(text)]:
                console.announce_failure(rank, text)
            case "restart_rank", [int(rank)]:
                self._begun = {key: text for key, text in self._begun.items() if key[0] != rank}
                console.restart_rank(rank)
            case "stop_holding", [int(rank)]:
                console.stop_holding(rank)
            case "summarize", [list(ranks), list(lines)]:
                self._failed, self._without_quote = ranks, lines
            case "finish_ranks", [bool(mentions)]:
                console.finish_ranks(mentions=mentions)


def _parse_event(line: bytes) -> dict[str, Any] | None:
    """Parse an event; return None for a broken line, as after a full disk."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _count_rows(event: Mapping[str, Any]) -> int:
    """Return the approximate number of screen rows that an event needs."""
    shown = event["event"] == "output" or (
        event["event"] == "note" and event.get("level") != "detail"
    )
    return max(1, str(event.get("text", "")).count("\n")) if shown else 0


def _parse_verdict(name: object) -> Verdict | None:
    return Verdict[name] if isinstance(name, str) else None


def _parse_failure(text: object) -> Failed | None:
    try:
        return Failed.of(text) if isinstance(text, str) else None
    except Malformed:
        return None
