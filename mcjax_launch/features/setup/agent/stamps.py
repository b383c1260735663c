"""Stamps: records on a host of commands that are done there, and of what each depends on.

A stamp holds as long as what its command is known to read, and what it has made, is as it was when
the command ended; at most for a day, and until the host, or the container, is started again.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import stat
import time

from ....agent.system import system
from ....machine.interpreter import find_executable
from ....machine.system import NEW_FILE, list_names
from ....wire.codec import Malformed, Nested, from_json, from_values, to_json
from .command import list_commands, list_words

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LASTS_S = 86_400.0
# Seconds: a command that sets variables and takes less is not worth a wrong guess; the same of one
# that does nothing else, and reads files of which only the first is known.
_QUICK_S, _QUICK_ALONE_S = 1.0, 10.0
_ONLY_VARIABLES = frozenset(
    {".", "source", "module", "ml", "conda", "mamba", "export", "unset", "eval", "set", "cd"}
    | {"[", "test", "true", "echo", ""}
)
_INSTALLS = frozenset({"install", "create", "update", "env"})
# Commands whose input nobody can see here: files elsewhere, or the sources of a build.
_UNSEEN = frozenset(
    {"git", "curl", "wget", "rsync", "scp", "sftp", "gsutil", "gcloud", "aws", "rclone", "azcopy"}
    | {"docker", "podman", "make", "cmake", "ninja", "bazel", "cargo", "go"}
)
# Files that say what an environment is to have, and parts of such names.
_LOCKS = re.compile(
    r"(uv|pdm|poetry|pixi|conda-lock|Pipfile)\.(lock|toml|yml|yaml)|Pipfile|environment\.ya?ml|"
    r"pyproject\.toml|setup\.(py|cfg)|\.python-version"
)
_LISTS = ("requirements", "constraints")
_VARIABLES = (
    *("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "MODULEPATH"),
    *("CONDA_PREFIX", "LOADEDMODULES"),
)
_MOST_BYTES = 1 << 20
# Words by which a command installs its own folder, or reads it.
_OWN_FOLDER = frozenset({"-e", "--editable", ".", "./"})


class Stamp(Nested):
    """Record of a command that is done.

    Args:
        state: checksum of what the command is known to read, and of the names and versions of the
            installed Python packages.
        made: entries of its folder that it has made.
        before, after: the values of the variables that it has changed; None for no such variable.

    """

    state: str
    made: tuple[str, ...]
    before: dict[str, str | None]
    after: dict[str, str | None]


class Surroundings:
    """State of all that a command may read and change, at one moment.

    Args:
        command: the command.
        folder: its folder.
        environ: its variables.
        given: those of the user among them.
        sent: checksum of the files that --sync has sent; "" for none.

    Attributes:
        place: name of the folder, in the name of the stamp.

    """

    def __init__(
        self,
        command: str,
        folder: str,
        environ: Mapping[str, str],
        given: Mapping[str, str],
        sent: str,
    ) -> None:
        self.command, self.folder = command, folder
        self.environ = environ
        self._given, self._sent = given, sent
        self.place = folder
        self._entries = frozenset(list_names(folder))
        self._tree = _list_tree(folder) if sent else frozenset()

    @property
    def name(self) -> str:
        """Name of the stamp's file, of this command in this folder on this host."""
        return _compute_checksum([self.command, self.place, _identify_host()])

    def make_stamp(self, after: Mapping[str, str | None], earlier: Stamp | None) -> Stamp:
        """Return the stamp of the command, which has just ended.

        Args:
            after: the variables that it has changed.
            earlier: stamp of its last run, which may have made entries that are still there.

        """
        entries = frozenset(list_names(self.folder))
        earlier_made = () if earlier is None else earlier.made
        made = tuple(sorted(entries - self._entries | entries.intersection(earlier_made)))
        before = {name: self.environ.get(name) for name in after}
        return Stamp(self._compute_state(after), made, before, dict(after))

    def depends_on_folder(self, stamp: Stamp) -> bool:
        """Return whether the command, which has just ended, has changed or named its folder."""
        if self._tree != _list_tree(self.folder) or "PWD" in self.command:
            return True
        values = filter(None, stamp.after.values())
        named = _OWN_FOLDER.intersection(list_words(self.command))
        return bool(named) or any(self.folder in value for value in values)

    def get_environ_after(self, after: Mapping[str, str | None]) -> dict[str, str]:
        """Return the variables as the command has changed them."""
        changed = {**self.environ, **after}
        return {name: value for name, value in changed.items() if value is not None}

    def has_not_changed_since(self, stamp: Stamp) -> bool:
        """Return whether the command has nothing to do, as far as is known."""
        if any(self.environ.get(name) != value for name, value in stamp.before.items()):
            return False
        has_made = self._entries.issuperset(stamp.made)
        return has_made and stamp.state == self._compute_state(stamp.after)

    def _compute_state(self, after: Mapping[str, str | None]) -> str:
        environ = self.get_environ_after(after)
        return _compute_checksum([*self._iterate_inputs(), *self._iterate_installed(environ)])

    def _iterate_inputs(self) -> Iterator[str]:
        """Yield what the command is known to read: variables, files that it names, and locks."""
        used = re.findall(r"\$\{?(\w+)", self.command)
        tools = [name for name in self.environ if name.startswith(("UV_", "PIP_", "CONDA_ENVS"))]
        names = sorted({*_VARIABLES, *used, *tools, *self._given})
        yield from (f"{name}={self.environ.get(name)}" for name in names)
        words = map(os.path.expanduser, list_words(self.command))
        paths = [os.path.join(self.folder, word) for word in words]
        folders = [self.folder, *filter(os.path.isdir, paths)]
        locks = [path for folder in dict.fromkeys(folders) for path in _list_locks(folder)]
        locks += _list_locks_above(self.folder)
        for path in [*locks, *filter(os.path.isfile, paths)]:
            yield f"{os.path.relpath(path, self.folder)} {_describe_file(path)}"
        yield "" if locks else self._sent

    def _iterate_installed(self, environ: Mapping[str, str]) -> Iterator[str]:
        """Yield what is installed for each Python that a command may lead to."""
        path = environ.get("PATH", os.defpath)
        found = [find_executable(name, "", path) for name in ("python", "python3")]
        roots = [os.path.dirname(os.path.dirname(python)) for python in found if python]
        roots += [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in environ]
        roots += [os.path.join(self.folder, ".venv"), os.path.expanduser("~/.local"), "/usr/local"]
        yield from (os.path.realpath(python) for python in found if python)
        yield from _iterate_packages(dict.fromkeys(roots))


def _list_tree(folder: str) -> frozenset[tuple[str, int, int]]:
    """Return the path, size and time of each file and folder below a folder."""
    found = set()
    for place, folders, files in os.walk(folder):
        for path in (os.path.join(place, name) for name in [*folders, *files]):
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
                found.add((path, size, status.st_mtime_ns))
    return frozenset(found)


def _list_locks(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in list_names(folder) if _is_lock(name)]


def _is_lock(name: str) -> bool:
    is_list = name.endswith(".txt") and any(part in name for part in _LISTS)
    return is_list or bool(_LOCKS.fullmatch(name))


def _list_locks_above(folder: str) -> list[str]:
    """Return uv's lock of the workspace that a folder is part of."""
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        if os.path.isfile(path := os.path.join(folder, "uv.lock")):
            return [path]
    return []


def _describe_file(path: str) -> str:
    """Return a text that differs if the content of a file differs."""
    try:
        found = os.stat(path)
        if found.st_size > _MOST_BYTES or not stat.S_ISREG(found.st_mode):
            return f"{found.st_size} {found.st_mtime_ns}"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        return f"error {error.errno}"


def _iterate_packages(roots: Iterable[str]) -> Iterator[str]:
    """Yield the folders of packages below these folders, and the names of what is installed."""
    for root in roots:
        for kind in ("site", "dist"):
            for folder in sorted(
                glob.glob(os.path.join(root, "lib*", "python3*", f"{kind}-packages"))
            ):
                ends = (".dist-info", ".egg-info", ".egg-link", ".pth")
                yield from (folder, *(name for name in list_names(folder) if name.endswith(ends)))


def _identify_host() -> str:
    """Return an id of this host, or of this container, since it was started."""
    return f"{os.uname().nodename} {system.get_machine_id()}"


def _compute_checksum(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def find_reason_against(around: Surroundings, seconds: float, stamp: Stamp, *, leaves: bool) -> str:
    """Return the reason for which a command has to run at each start; "" if a stamp may be kept.

    Args:
        around: surroundings of the command, which has succeeded.
        seconds: its duration.
        stamp: its stamp.
        leaves: True if it has left processes running.

    """
    if leaves:
        return "it has left processes running"
    names = list_commands(around.command)
    if found := next((name for name in names if name in _UNSEEN), ""):
        return f"what {found} reads is not known"
    installs = bool(_INSTALLS.intersection(list_words(around.command)))
    is_alone = _ONLY_VARIABLES.issuperset(names) and not installs
    if stamp.after and seconds < (_QUICK_ALONE_S if is_alone else _QUICK_S):
        return "it sets variables, and is quick"
    return ""


# --- the files of the stamps ---

# Beginning of the names of locks; a lock may be held, so it is never removed.
_LOCK = "lock-"
# Seconds by which the clock of a file server may be ahead.
_AHEAD_S = 600.0


def read(folder: str, name: str, since: float) -> Stamp | None:
    """Return the stamp in a file; None if there is none that was written since a time."""
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            if not since <= os.fstat(file.fileno()).st_mtime <= time.time() + _AHEAD_S:
                return None
            return from_values(Stamp, from_json(file.read()))
    except (OSError, ValueError, Malformed):
        return None


def compute_oldest() -> float:
    """Return the time at which the oldest stamps were written that still hold."""
    return time.time() - _LASTS_S


def write(folder: str, name: str, stamp: Stamp) -> None:
    """Write a stamp; remove those that no longer hold.

    Raises:
        OSError: it cannot be written.

    """
    for old in list_names(folder):
        path = os.path.join(folder, old)
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime < compute_oldest() and not old.startswith(_LOCK):
                os.unlink(path)
    part = os.path.join(folder, f"{name}.{os.getpid()}")
    with open(os.open(part, NEW_FILE, 0o600), "w", encoding="utf-8") as file:
        file.write(to_json(stamp))
    os.replace(part, os.path.join(folder, name))


def open_lock(folder: str) -> int:
    """Open the file that jobs lock on this host; return its descriptor.

    Raises:
        OSError: it cannot be opened.

    """
    name = f"{_LOCK}{_compute_checksum([_identify_host()])[:16]}"
    return os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
