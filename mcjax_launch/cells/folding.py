"""Folding of what several ranks print or show: equal lines and values once, with their ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from mcjax_launch.api.events import Line
from mcjax_launch.console.collapse import Collapse, LineGroup
from mcjax_launch.console.noise_filter import NoiseFilter
from mcjax_launch.console.pieces import Lines, Piece, Stream, make_lines
from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.jax_messages.cpp_blocks import split_at_message
from mcjax_launch.jax_messages.noise import Noise
from mcjax_launch.ranks import group_by_key
from mcjax_launch.runs.rank_run import Verdict
from mcjax_launch.wire.frames import STDERR, STDOUT
from mcjax_launch.wire.value import Value

#: Texts by MIME type, and pictures in base64.
Bundle = Mapping[str, str]
#: The type that each bundle has.
PLAIN = "text/plain"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Printed(Value):
    """Line to print.

    Args:
        text: the line with its prefix and newline.
        is_error: True for standard error.

    """

    text: str
    is_error: bool


class Folding:
    """Queue of the lines that ranks print during a cell.

    Args:
        ranks: number of ranks that run the cell.
        prefixes: style of the prefixes.

    """

    def __init__(self, ranks: int, prefixes: Prefixes) -> None:
        self._noise = NoiseFilter()
        self._collapse = Collapse(ranks)
        self._prefixes = prefixes
        self._streams: dict[tuple[int, int], Stream] = {}
        self._is_ending = False  # a rank has ended

    @property
    def deadline(self) -> float | None:
        """Time at which a line has waited long enough for other ranks; None if none waits."""
        times = [at for at in (self._noise.deadline, self._collapse.deadline) if at is not None]
        return min(times) if times else None

    def feed(self, line: Line, now: float) -> list[Printed]:
        """Add a line of a rank; return the lines to print now."""
        number = STDERR if line.stream == "stderr" else STDOUT
        key = line.rank, number
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(line.rank, number)
        data = f"{line.text}\n".encode("utf-8", "surrogateescape")
        if number == STDERR and split_at_message(data)[1] is Noise.TERM:
            return []
        return self._fold(self._noise.feed(make_lines(stream, data), now), now)

    def expire(self, now: float) -> list[Printed]:
        """Return the lines that have waited long enough."""
        shown = self._fold(self._noise.expire(now), now)
        return [*shown, *self._print(self._collapse.expire(now))]

    def end_job(self, failed: int, now: float) -> list[Printed]:
        """Hide what ranks report because another rank has failed; return the lines to print now.

        Args:
            failed: number of the rank that has ended first.
            now: time, in time.monotonic's seconds.

        """
        if self._is_ending:
            return []
        self._is_ending = True
        self._noise.failures.set_verdict(failed, Verdict.FAILED, None)
        return self._fold(self._noise.fold_victims(own_term=True, now=now), now)

    def flush(self, now: float) -> list[Printed]:
        """Return all lines that wait, because the cell is over."""
        ranks = {rank for rank, _ in self._streams}
        shown = [line for rank in ranks for line in self._fold(self._noise.stop_holding(rank), now)]
        return [*shown, *self._print(self._collapse.flush())]

    def _fold(self, pieces: Iterable[Piece], now: float) -> list[Printed]:
        lines = (piece for piece in pieces if isinstance(piece, Lines))  # as `feed` makes them
        return [line for piece in lines for line in self._print(self._collapse.feed(piece, now))]

    def _print(self, groups: Iterable[LineGroup]) -> list[Printed]:
        return [
            Printed(
                prefix_lines(group.text.decode("utf-8", "replace"), group.ranks, self._prefixes),
                group.key[0] == STDERR,
            )
            for group in groups
        ]


def prefix_lines(text: str, ranks: Sequence[int], prefixes: Prefixes) -> str:
    """Return a text with the prefix of ranks before each line, and with a newline."""
    prefix = prefixes.format_shared_prefix(ranks).decode()
    return "".join(f"{prefix}{line}\n" for line in text.split("\n"))


def _make_key(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    """Return what two ranks show alike if their values are equal: all but addresses in memory."""
    rich = {mime: data for mime, data in bundle.items() if mime != PLAIN}
    return tuple(sorted(rich.items())) or ((PLAIN, _ADDRESS.sub("", bundle[PLAIN])),)


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
