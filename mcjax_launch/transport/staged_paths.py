"""Translation of paths of staged files (--sync) in ranks' output and messages to original paths.

Each host keeps its copies in a private folder with a random name, removed after the job.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from mcjax_launch.transport.staging import get_staged_path
from mcjax_launch.wire.codec import Message, to_json
from mcjax_launch.wire.messages import HostFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ENDS = rb"(?![\w-]|\.\w|\\u)"  # the end of a file's name, also in JSON


class StagedPaths:
    """Translator from paths of staged copies to paths of their originals; keeps all other text.

    Args:
        paths: paths given with --sync.
        cwd: working directory of the launcher.

    """

    def __init__(self, paths: Iterable[str], cwd: str) -> None:
        self._folders = frozenset[str]()
        self._sources = tuple(
            (_format_subpath(get_staged_path(path, cwd)), os.path.normpath(os.path.join(cwd, path)))
            for path in paths
        )

    def add(self, folder: str) -> None:
        """Record the path of a host's staging folder; "" is ignored."""
        self._folders |= {folder} - {""}

    def in_bytes(self, data: bytes, encode: Callable[[str], bytes] = os.fsencode) -> bytes:
        """Return whole lines of a rank's output with copies' paths replaced by originals' paths.

        Args:
            data: the lines.
            encode: the form in which they have paths.

        """
        if not self._folders:
            return data
        pattern, originals = _compile(self._folders, self._sources, encode)
        return pattern.sub(lambda found: originals[found[1]], data)

    def with_originals(self, message: Message) -> Message:
        """Return a message with originals' paths; a host's facts name its staging folder."""
        if isinstance(message, HostFacts):
            self.add(message.stage)
            return message
        encoded = to_json(message).encode()
        changed = self.in_bytes(encoded, _encode_as_json)
        return Message.of(changed.decode()) if changed != encoded else message


@cache
def _compile(
    folders: frozenset[str], sources: tuple[tuple[str, str], ...], encode: Callable[[str], bytes]
) -> tuple[re.Pattern[bytes], dict[bytes, bytes]]:
    """Return a pattern of copies' paths, whose group is the part that the originals have here."""
    originals = {encode(place): encode(source) for place, source in sources}
    # Among paths with the same beginning, the longest must come first.
    places = b"|".join(map(re.escape, sorted(originals, reverse=True)))
    among = b"|".join(re.escape(encode(folder)) for folder in folders)
    return re.compile(b"(?:%b)(%b)%b" % (among, places, _ENDS)), originals


def _encode_as_json(text: str) -> bytes:
    return to_json(text)[1:-1].encode()


def _format_subpath(place: str) -> str:
    """Return the part of a copy's path after the staging folder: "" or with a leading slash."""
    return "" if place == os.curdir else f"/{place}"
