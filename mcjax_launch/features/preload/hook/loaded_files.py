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
    """All files that this process has loaded, and the folders in which it has looked for modules.

    Args:
        since: when this process was started, in nanoseconds since the epoch. A file that is newer
            counts as changed: which of its versions was loaded is not known.

    """

    def __init__(self, since: int) -> None:
        self._found = {path: _identify(path) for path in _list_files()}
        self._folders = {path: _identify(path) for path in _list_package_folders()}
        self._paths = {path: _list_modules(path) for path in _list_search_path()}
        self._newer = next((p for p, each in self._found.items() if max(each[3:]) >= since), "")

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
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        files |= {line[line.index("/") :].rstrip("\n") for line in maps if "/" in line}
    files.add(os.path.join(sys.prefix, "pyvenv.cfg"))
    for folder in _list_search_path():
        files.update(os.path.join(folder, name) for name in _list_modules(folder) if ".pth" in name)
    return {path for path in files if isinstance(path, str) and os.path.exists(path)}


def _list_package_folders() -> set[str]:
    folders: set[str] = set()
    for module in list(sys.modules.values()):
        try:
            folders.update(module.__path__)
        except (AttributeError, TypeError):
            continue
    return folders


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
