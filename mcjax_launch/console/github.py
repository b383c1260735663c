"""Workflow commands of GitHub Actions, and each rank's output in a group that folds; pure.

The runner takes a line that begins with `::`, blanks aside, for a command, and one in which
`##[name]` stands anywhere, on stdout and on stderr alike.
"""

import os
from collections.abc import Iterator, Sequence

from mcjax_launch.console.pieces import Lines, Piece, Stream
from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.console.renderers import last_drawn

# Of each rank's output at most so much is kept for its group, and of all ranks' together.
_MOST, _MOST_OF_ALL, _LEAST = 256 << 10, 4 << 20, 16 << 10
_ONE_LINE = 64 << 10
_IN_DATA = {ord(char): f"%{ord(char):02X}" for char in "%\r\n"}
_IN_PROPERTIES = {**_IN_DATA, ord(":"): "%3A", ord(","): "%2C"}


def command(name: str, data: str = "", **properties: object) -> str:
    """A command for the runner: one whole line.

    Args:
        name: such as "error".
        data: its text, of any lines.
        properties: such as `line`; those that are None are left out.

    """
    given = [
        f"{key}={str(value).translate(_IN_PROPERTIES)}"
        for key, value in properties.items()
        if value is not None
    ]
    head = f"{name} {','.join(given)}" if given else name
    return f"::{head}::{data.translate(_IN_DATA)}\n"


class Groups:
    """Keeps the last of what each rank has printed, to show it once more, rank by rank.

    Args:
        labels: of the ranks.

    """

    def __init__(self, labels: Sequence[RankLabel]) -> None:
        self._most = max(_LEAST, min(_MOST, _MOST_OF_ALL // len(labels)))
        self._kept = {label.process_id: bytearray() for label in labels}
        self._names = {
            label.process_id: f"rank {label.process_id}{f' on {label.host}' if label.host else ''}"
            for label in labels
        }
        self._cut: set[int] = set()
        self._begun: dict[Stream, bytearray] = {}
        self._prefixes: dict[int, bytes] = {}

    def feed(self, piece: Piece) -> None:
        """Keep a piece of a rank's stream, as it is shown."""
        stream = piece.stream
        self._prefixes[stream.rank] = stream.prefix
        if isinstance(piece, Lines):
            self._keep(stream.rank, piece.text)
            return
        begun = self._begun.setdefault(stream, bytearray())
        begun += piece.text
        if piece.ends:
            self._keep(stream.rank, bytes(self._begun.pop(stream)))
        elif len(begun) > _ONE_LINE:  # the whole line has been shown
            del begun[: -_ONE_LINE // 2]

    def _keep(self, rank: int, text: bytes) -> None:
        kept = self._kept[rank]
        kept += text
        if len(kept) > self._most + self._most // 4:  # seldom, for many small pieces
            del kept[: len(kept) - self._most]
            del kept[: kept.find(b"\n") + 1]
            self._cut.add(rank)

    def take(self) -> Iterator[bytes]:
        """Whole lines for the log: a group for each rank."""
        for rank, kept in self._kept.items():
            name = self._names[rank]
            if not kept:
                yield (command("group", f"{name} (no output)") + command("endgroup")).encode()
                continue
            # What stands between these two is nothing but text to the runner.
            token = os.urandom(16).hex()
            before = command("group", name) + command("stop-commands", token)
            note = "mcjax-launch: only the last lines are repeated here\n"
            yield (before + (note if rank in self._cut else "")).encode()
            prefix = self._prefixes[rank]
            for line in bytes(kept[:-1]).split(b"\n"):
                yield prefix + (last_drawn(line) if b"\r" in line else line) + b"\n"
            yield (command(token) + command("endgroup")).encode()
            kept.clear()
