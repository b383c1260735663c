"""Steps of a forked rank before its program; in other ranks, these come before Python starts."""

from __future__ import annotations

import os
import stat
import sys

from ....kernel.hook.agent_link import unseen
from ....kernel.wire.rank_process import die_with_parent

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

    from ....kernel.wire.rank_process import Prctl, RankSettings


class System:
    """Parts of the C library; the modules that they need stay hidden from the program."""

    def __init__(self) -> None:
        self._ctypes: Any = unseen("ctypes")
        self._library: Any = self._ctypes.CDLL(None)
        self.prctl: Prctl = self._library.prctl

    def environment(self) -> dict[str, str]:
        """Return all variables as C sees them, including variables that were set in C."""
        c = self._ctypes
        pointer = c.POINTER(c.c_char_p).in_dll(self._library, "environ")
        found, at = {}, 0
        while pointer and pointer[at] is not None:
            name, _, value = pointer[at].partition(b"=")
            found[os.fsdecode(name)] = os.fsdecode(value)
            at += 1
        return found


# --- what /proc shows ---

# Positions of fields in /proc/PID/stat, counted after the process's name.
_ARGUMENTS, _ENVIRONMENT = slice(45, 47), slice(47, 49)


def show(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Change the command and environment that /proc and `ps` show, where there is room for them."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    _overwrite(fields[_ARGUMENTS], argv)
    _overwrite(fields[_ENVIRONMENT], [f"{name}={value}" for name, value in environ.items()])


def _overwrite(area: Sequence[bytes], words: Sequence[str]) -> None:
    """Overwrite an area of memory that the kernel shows, if the words fit."""
    start, end = map(int, area)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(text) > end - start:
        return
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(text.ljust(end - start, b"\0"))
    except OSError:  # not permitted for this user
        pass


# --- before its program ---


def begin(descriptors: Sequence[int], settings: RankSettings, agent: int, prctl: Prctl) -> None:
    """Set up this rank's session, streams and settings; then wait until it may begin.

    It may begin when the agent is its parent; from then on it ends with the agent.

    Args:
        descriptors: descriptors for its 0, 1 and 2, and a descriptor to wait on.
        settings: settings of its process.
        agent: the agent's pid.
        prctl: function of the C library.

    """
    os.setsid()
    *standard, start = descriptors
    for target, fd in enumerate(standard):
        os.dup2(fd, target)
        os.close(fd)
    settings.apply()
    begins = os.read(start, 1)
    os.close(start)
    if not begins:  # the agent does not want this rank any more, or is gone
        os._exit(0)
    die_with_parent(agent, prctl)


def renew() -> None:
    """Renew objects that ranks must not share: `__main__`, stdin, NumPy seed, authkey, thread id.

    Python reseeds the `random` module itself after a fork.
    """
    sys.modules["__main__"] = _copy(sys.modules["__main__"])
    if "__mp_main__" in sys.modules:  # as multiprocessing calls it
        sys.modules["__mp_main__"] = sys.modules["__main__"]
    if not stat.S_ISCHR(os.fstat(0).st_mode):  # sys.stdin was made for /dev/null
        its: Any = sys.stdin
        streams: Any = sys
        streams.stdin = streams.__stdin__ = open(  # noqa: SIM115
            0, encoding=its.encoding, errors=its.errors, newline="\n", closefd=False
        )
        streams.stdin.reconfigure(write_through=its.write_through)
        streams.stdin.buffer.raw.name = its.name
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    threading: Any = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()


def _copy(main: ModuleType) -> ModuleType:
    """Return a copy of `__main__`: the original may be frozen, so it would not be finalized."""
    copy = type(main)(main.__name__)
    vars(copy).update(vars(main))
    return copy
