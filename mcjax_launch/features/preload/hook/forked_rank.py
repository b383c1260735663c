"""Steps of a forked rank before its program; in other ranks, these come before Python starts."""

from __future__ import annotations

import os
import sys

from ....hook.agent_link import import_privately
from ....wire.rank_process import die_with_parent

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

    from ....wire.rank_process import Prctl, RankSettings


# --- what /proc shows ---

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_UNCHANGED = 0xFFFFFFFF
# Positions of fields in /proc/PID/stat, counted after the process's name.
_BEFORE_HEAP_END, _STACK = (23, 24, 42, 43, 44), 25  # of code, data, and the heap's start


class System:
    """Calls of the C library; the modules that they need stay hidden from the program."""

    def __init__(self) -> None:
        self._ctypes: Any = import_privately("ctypes")
        self._library: Any = self._ctypes.CDLL(None)
        self.prctl: Prctl = self._library.prctl
        self._shown: Any = None  # where the kernel reads the command: kept as long as the process

    def set_shown_command(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Have the kernel, if it can, show another command and environment in /proc and `ps`."""
        command = b"".join(os.fsencode(word) + b"\0" for word in argv)
        variables = b"".join(os.fsencode(f"{name}={environ[name]}") + b"\0" for name in environ)
        with open("/proc/self/stat", "rb") as file:
            fields = [int(field) for field in file.read().rpartition(b")")[2].split()[1:]]
        fields.insert(0, 0)  # the state
        c = self._ctypes
        self._shown = c.create_string_buffer(command + variables)
        begin = c.addressof(self._shown)
        middle, end = begin + len(command), begin + len(command) + len(variables)
        self._library.sbrk.restype = c.c_void_p
        heap_end = self._library.sbrk(c.c_ssize_t(0))
        addresses = [*(fields[at] for at in _BEFORE_HEAP_END), heap_end, fields[_STACK]]
        addresses += [begin, middle, middle, end, 0]
        data = b"".join(address.to_bytes(8, sys.byteorder) for address in addresses)
        data += (0).to_bytes(4, sys.byteorder) + _UNCHANGED.to_bytes(4, sys.byteorder)
        size = c.c_ulong(len(data))
        self.prctl(_PR_SET_MM, c.c_ulong(_PR_SET_MM_MAP), data, size, c.c_ulong(0))


# --- before its program ---


def set_up_process(
    descriptors: Sequence[int], settings: RankSettings, agent: int, prctl: Prctl
) -> None:
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
    """Renew objects that ranks must not share: `__main__`, NumPy seed, authkey, thread id.

    Python reseeds the `random` module itself after a fork.
    """
    sys.modules["__main__"] = _copy(sys.modules["__main__"])
    if "__mp_main__" in sys.modules:  # as multiprocessing calls it
        sys.modules["__mp_main__"] = sys.modules["__main__"]
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
