"""Visible effects of a program, as Python's audit events show them."""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Events without an effect outside the process; of other events that is not known.
_HARMLESS = frozenset(
    {
        *("import", "compile", "exec", "code.__new__", "function.__new__", "builtins.id"),
        *("marshal.load", "marshal.loads", "marshal.dumps", "pickle.find_class"),
        *("object.__getattr__", "object.__setattr__", "object.__delattr__", "array.__new__"),
        *("os.chdir", "os.listdir", "os.scandir", "os.walk", "os.fwalk"),
        *("glob.glob", "glob.glob/2", "pathlib.Path.glob", "pathlib.Path.rglob"),
        *("os.putenv", "os.unsetenv", "mmap.__new__", "time.sleep", "resource.setrlimit"),
        *("socket.__new__", "socket.gethostname", "socket.getaddrinfo"),
        *("socket.gethostbyname", "socket.gethostbyaddr"),
        *("_thread.start_new_thread", "_thread.start_joinable_thread"),
    }
)
# (ctypes raises none for what a function of C does.)
_HARMLESS_PREFIXES = ("sys._", "sys.set", "sys.monitoring.", "cpython.", "gc.", "ctypes.")
_IMPORTER = "<frozen importlib._bootstrap_external>"  # the file of Python's own code for imports


class EffectWatch:
    """Watch for the first event that may have had a visible effect.

    Files that Python compiles from modules do not count. Python cannot remove an audit hook, but
    after `stop`, or the first such event, it costs only a call.

    Attributes:
        has_effect: True after such an event.
        compiled: sizes in bytes of the .pyc files that this process has written.

    """

    def __init__(self) -> None:
        self.has_effect = False
        self.compiled: list[int] = []
        self._is_on = True

        # A plain function with this attribute, which Python looks up at each event, costs least.
        def on_event(event: str, args: tuple[Any, ...]) -> None:
            if self._is_on and not self._is_harmless(event, args):
                self.has_effect, self._is_on = True, False

        on_event.__cantrace__ = False  # type: ignore[attr-defined]
        sys.addaudithook(on_event)

    def stop(self) -> None:
        """Ignore all further events."""
        self._is_on = False

    def _is_harmless(self, event: str, args: tuple[Any, ...]) -> bool:
        """Return whether an event has no effect; raise nothing, which would stop the program."""
        if event in _HARMLESS or event.startswith(_HARMLESS_PREFIXES):
            return True
        try:
            if event == "open" and _reads_again(*args):
                return True
            if event == "socket.bind" and args[1][1] == 0:  # to any port
                return True
            is_import = sys._getframe(2).f_code.co_filename == _IMPORTER
            if is_import and event == "os.rename":  # of a .pyc file, once it is complete
                self.compiled.append(os.stat(args[0]).st_size)
        except Exception:
            return False
        return is_import


def _reads_again(path: object, _mode: object, flags: int) -> bool:
    """Return whether to open a file has no effect, so that it can be read a second time."""
    if isinstance(path, int):  # what is written to open descriptors is counted
        return True
    if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
        return False
    try:
        mode = os.stat(path).st_mode  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError):  # it cannot be opened
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode)
