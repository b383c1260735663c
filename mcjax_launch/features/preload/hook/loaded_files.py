"""The files that this process has loaded, to see later whether it would load the same again."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_MODULES = ("", ".py", ".pyc", ".so")


class LoadedFiles:
    """Files that this process has loaded, and the folders in which it has looked for modules.

    Args:
        since: when this process was started, in nanoseconds since the epoch. A file that is newer,
            or gone, counts as changed: which of its versions was loaded is not known.

    """

    def __init__(self, since: int) -> None:
        self._found = {path: _identify(path) for path in _list_files()}
        self._folders = {path: _identify(path) for path in _list_package_folders()}
        self._paths = {path: _list_modules(path) for path in _list_search_path()}
        newer = (path for path, each in self._found.items() if max(each) == 0 or each[4] >= since)
        self._newer = next(newer, "")

    def find_change(self) -> str:
        """Return the path of a file or folder that is not what it was; "" if all are."""
        for path, before in (*self._found.items(), *self._folders.items()):
            if _identify(path) != before:
                return path
        for path, names in self._paths.items():
            if _list_modules(path) != names:
                return path
        return self._newer


def _identify(path: str) -> tuple[int, ...]:
    """Return numbers that change when a file is saved, or replaced; zeros if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0, 0, 0)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _list_files() -> set[str]:
    """Return the paths of all modules' files, of mapped libraries, and of what `site` has read."""
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # A module in an archive has the path of the archive in front.
    files = {path for path in loaded if isinstance(path, str) and os.path.isdir(_get_folder(path))}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line[line.index("/") :].rstrip("\n") for line in maps if "/" in line}
    mapped.add(os.path.join(sys.prefix, "pyvenv.cfg"))
    for folder in _list_search_path():
        mapped.update(os.path.join(folder, n) for n in _list_modules(folder) if n.endswith(".pth"))
    return files | set(filter(os.path.exists, mapped))


def _get_folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _list_package_folders() -> set[str]:
    paths = [getattr(module, "__path__", None) for module in list(sys.modules.values())]
    return {folder for path in paths if isinstance(path, list) for folder in path}


def _list_search_path() -> Iterator[str]:
    """Yield the folders of sys.path, and that of the user's own packages, which may be new."""
    yield from sys.path
    site: Any = sys.modules.get("site")
    if getattr(site, "ENABLE_USER_SITE", None) and site.USER_SITE not in sys.path:
        yield site.USER_SITE


def _list_modules(folder: str) -> tuple[str, ...]:
    """Return the names in a folder that can be modules, packages or .pth files; () if none."""
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:  # such as a file that is a zip archive
        return ()
    return tuple(
        name
        for name in names
        if name.endswith(".pth")
        or (name.partition(".")[0].isidentifier() and os.path.splitext(name)[1] in _MODULES)
    )
