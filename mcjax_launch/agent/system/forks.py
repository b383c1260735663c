"""Forks of this process that become programs, which the kernel kills when this process ends.

`posix_spawn` cannot request that from the kernel. A fork costs more, most of it for memory that
this process touches between two forks: so all are forked in a row, and checked afterwards.
"""

from __future__ import annotations

import _signal  # unlike signal it makes no enums, for which each rank would wait
import errno
import os
import struct

from ...wire.rank_process import die_with_parent
from ...wire.signals import RESET_IN_RANKS
from .unix import become_standard, explain_refusal, find_paths, try_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from ...wire.rank_process import Prctl
    from .unix import Invocation, Spawned

_FAILED = struct.Struct("=ii")  # the pid of a fork that cannot execute its program, and the errno


class Forks:
    """Forks of this process, each of which executes a program.

    Args:
        prctl: function `prctl` of the C library.

    Raises:
        OSError: there is no room for another pipe.

    """

    def __init__(self, prctl: Prctl) -> None:
        self._prctl = prctl
        self._agent = os.getpid()
        self._failed, self._failing = os.pipe()
        # A signal to a fork must not run handlers inherited from this process.
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        handled = [n for n in _signal.valid_signals() if callable(_signal.getsignal(n))]
        self._reset = (*RESET_IN_RANKS, *handled)
        self._programs: dict[int, Invocation] = {}

    def fork(self, program: Invocation) -> int:
        """Fork a process that executes a program; return its pid.

        Raises:
            OSError: there is no such program, or no room for another process.

        """
        paths = find_paths(program)
        pid = os.fork()
        if pid == 0:
            self._become(paths, program)
        self._programs[pid] = program
        return pid

    def finish(self) -> dict[int, Spawned]:
        """Wait until each fork has executed its program; return why some cannot, by their pids."""
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        os.close(self._failing)
        with open(self._failed, "rb") as pipe:
            codes = dict(_FAILED.iter_unpack(pipe.read()))  # exec closes the other end
        for pid in codes:
            os.waitpid(pid, 0)
        return {
            pid: explain_refusal(OSError(code, os.strerror(code)), self._programs[pid])
            for pid, code in codes.items()
        }

    def _become(self, paths: list[str], program: Invocation) -> NoReturn:
        """Turn a fork into its program, in its own session, with default signal actions."""
        try:
            become_standard(program.files)
            os.setsid()
            program.settings.apply()
            for signum in self._reset:
                _signal.signal(signum, _signal.SIG_DFL)
            die_with_parent(self._agent, self._prctl)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            try_each(paths, lambda path: os.execve(path, list(program.argv), program.env))
        except BaseException as error:
            code = getattr(error, "errno", None) or errno.EINVAL
            os.write(self._failing, _FAILED.pack(os.getpid(), code))
        finally:
            os._exit(1)
