"""Removal of stale compiled files (*.pyc) of saved modules."""

import contextlib
import glob
import os

_HEAD = 16
_CHECKED_BY_HASH = 1


def remove_stale(path: str) -> None:
    """Remove the compiled files of a source file that Python would consider up to date.

    Python compares the source's time in whole seconds and its length. So if a module is saved twice
    within a second, with equal lengths, its first version would be run.
    """
    folder, name = os.path.split(path)
    pattern = os.path.join(glob.escape(folder), "__pycache__", f"{glob.escape(name[:-3])}.*.pyc")
    for compiled in glob.glob(pattern):
        with contextlib.suppress(OSError):
            if _looks_fresh(compiled, os.stat(path)):
                os.unlink(compiled)


def _looks_fresh(compiled: str, source: os.stat_result) -> bool:
    with open(compiled, "rb") as file:
        head = file.read(_HEAD)
    flags, seconds, length = (int.from_bytes(head[at : at + 4], "little") for at in (4, 8, 12))
    expected = (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
    return not flags & _CHECKED_BY_HASH and (seconds, length) == expected
