"""Translation of paths of staged files (--sync) in ranks' output and messages to original paths.

Each host keeps its copies in a private folder with a random name, removed after the job.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from mcjax_launch.transport.staging import get_staged_path
from mcjax_launch.wire.codec import Message, Nested
from mcjax_launch.wire.messages import HostFacts

if TYPE_CHECKING:
    from collections.abc import Iterable

N = TypeVar("N", bound=Nested)

_ENDS = r"(?![\w-]|\.\w)"  # the end of a file's name


class StagedPaths:
    """Translator from paths of staged copies to paths of their originals; keeps all other text.

    Args:
        paths: paths given with --sync.
        cwd: working directory of the launcher.

    """

    def __init__(self, paths: Iterable[str], cwd: str) -> None:
        self._folders: set[str] = set()
        self._sources = {
            _format_subpath(get_staged_path(path, cwd)): os.path.normpath(os.path.join(cwd, path))
            for path in paths
        }

    def add(self, folder: str) -> None:
        """Record the path of a host's staging folder; "" is ignored."""
        if folder and folder not in self._folders:
            self._folders.add(folder)
            self.__dict__.pop("_patterns", None)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[bytes]]:
        folders = "|".join(map(re.escape, sorted(self._folders)))
        # Among paths with the same beginning, the longest must come first.
        places = "|".join(map(re.escape, sorted(self._sources, reverse=True)))
        pattern = f"(?:{folders})({places}){_ENDS}"
        return re.compile(pattern), re.compile(os.fsencode(pattern))

    def in_text(self, text: str) -> str:
        """Return the text with copies' paths replaced by originals' paths."""
        if not self._folders:
            return text
        return self._patterns[0].sub(lambda found: self._sources[found[1]], text)

    def in_bytes(self, data: bytes) -> bytes:
        """Return whole lines of a rank's output with copies' paths replaced by originals' paths."""
        if not self._folders:
            return data
        return self._patterns[1].sub(
            lambda found: os.fsencode(self._sources[os.fsdecode(found[1])]), data
        )

    def with_originals(self, message: Message) -> Message:
        """Return a message with originals' paths; a host's facts name its staging folder."""
        if isinstance(message, HostFacts):
            self.add(message.stage)
            return message
        return self.in_fields(message)

    def in_fields(self, value: N) -> N:
        """Return a message, or a value in it, with originals' paths in all its text fields."""
        changes = {
            name: changed
            for name in value._fields
            if (changed := self._in_value(before := getattr(value, name))) is not before
        }
        return value.copy_with(**changes) if changes else value

    def _in_value(self, value: object) -> object:
        if isinstance(value, str):
            changed = self.in_text(value)
            return changed if changed != value else value
        if isinstance(value, Nested):
            return self.in_fields(value)
        if isinstance(value, tuple):
            parts = tuple(map(self._in_value, value))
            return parts if parts != value else value
        if isinstance(value, dict):
            return {key: self._in_value(part) for key, part in value.items()}
        return value


def _format_subpath(place: str) -> str:
    """Return the part of a copy's path after the staging folder: "" or with a leading slash."""
    return "" if place == os.curdir else f"/{place}"
