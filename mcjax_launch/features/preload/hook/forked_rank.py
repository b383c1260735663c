"""A forked rank before its program: what is done for any other rank before Python starts."""

from __future__ import annotations

import io
import os
import stat
import sys

from ....kernel.hook.agents_death import die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

    from ....kernel.hook.agents_death import Prctl


def begin(descriptors: Sequence[int], cores: Sequence[int], agent: int, prctl: Prctl) -> None:
    """Take a session, streams and cores of its own; then wait until it may begin.

    That is when the agent is the parent, with which it is to end.

    Args:
        descriptors: its 0, 1 and 2, and the one to wait on.
        cores: what it may run on; empty for all.
        agent: the agent's pid.
        prctl: the system's function.

    """
    os.setsid()
    *standard, start = descriptors
    for target, fd in enumerate(standard):
        os.dup2(fd, target)
        os.close(fd)
    if cores:
        os.sched_setaffinity(0, cores)
    begins = os.read(start, 1)
    os.close(start)
    if not begins:  # the agent has changed its mind, or is gone
        os._exit(0)
    die_with_parent(agent, prctl)


def renew() -> None:
    """Have a `__main__` and random numbers of its own; Python's own generator sees to itself."""
    sys.modules["__main__"] = _copy(sys.modules["__main__"])
    if "__mp_main__" in sys.modules:  # as multiprocessing calls it
        sys.modules["__mp_main__"] = sys.modules["__main__"]
    if not stat.S_ISCHR(os.fstat(0).st_mode):  # not the /dev/null for which it was made
        streams: Any = sys
        streams.stdin = streams.__stdin__ = _reader_of(sys.stdin)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    threading: Any = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()


def _reader_of(stdin: Any) -> Any:
    """What Python makes for standard input, with the settings that this one has."""
    raw = io.FileIO(0, "r", closefd=False)
    raw.name = "<stdin>"
    reader: Any = io.TextIOWrapper(
        io.BufferedReader(raw),
        stdin.encoding,
        stdin.errors,
        "\n",
        stdin.line_buffering,
        stdin.write_through,
    )
    reader.mode = "r"
    return reader


def _copy(main: ModuleType) -> ModuleType:
    """An equal module: this one may be frozen, and the program's own objects are finalized."""
    copy = type(main)(main.__name__)
    vars(copy).update(vars(main))
    return copy
