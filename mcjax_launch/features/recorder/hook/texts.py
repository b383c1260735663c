"""Texts of the latest programs, in files that the agent reads if ranks run different programs."""

from __future__ import annotations

import os
import zlib
from collections import deque

# The latest programs that are kept, and bytes of all files together.
_MOST, _MOST_BYTES = 256, 1 << 25


class ProgramTexts:
    """Files with the latest programs of this process.

    Args:
        begin: path of each file without the dot and the program's identity at its end.

    """

    def __init__(self, begin: str) -> None:
        self._begin = begin
        self._kept: deque[tuple[str, int]] = deque()  # paths and lengths

    def keep(self, identity: int, text: str) -> None:
        """Keep the text of a program, if it can be written; remove the oldest texts."""
        path = f"{self._begin}.{identity}"
        if any(kept == path for kept, _ in self._kept):
            return
        try:
            packed = zlib.compress(text.encode(), 1)
            with open(path, "wb") as file:
                file.write(packed)
        except OSError:
            return
        self._kept.append((path, len(packed)))
        while len(self._kept) > _MOST or sum(size for _, size in self._kept) > _MOST_BYTES:
            oldest, _ = self._kept.popleft()
            try:
                os.unlink(oldest)
            except OSError:
                pass
