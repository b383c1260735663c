"""A process that is no child, held by a descriptor: whether it has ended, and how."""

from __future__ import annotations

import os
import struct

# Of include/uapi/linux/pidfd.h: 16 bytes, 11 numbers, and the status as `wait` would give it.
_INFO = struct.Struct("QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_HAS_STATUS = 1 << 3


class Watched:
    """A process whose end may be another's to wait for."""

    def __init__(self, pid: int) -> None:
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old Linux; or it has ended
            self._pidfd = -1

    def ended(self) -> bool:
        """Whether it is over, as far as that can be known."""
        import select

        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def let_go(self) -> int | None:
        """Watch it no more; its status, or minus a signal; None where nobody can know it."""
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd < 0:
            return None
        try:
            return _status(pidfd)
        finally:
            os.close(pidfd)


def _status(pidfd: int) -> int | None:
    """How a process has ended; None if somebody else has waited for it, before Linux 6.15."""
    import fcntl

    try:  # it is the rank's own process, or has outlived the wrapper
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        pass
    else:
        if ended is None:
            return None
        exited = ended.si_code == os.CLD_EXITED
        return ended.si_status if exited else -ended.si_status
    asked = _INFO.pack(_HAS_STATUS, *(0,) * 13)
    try:
        answer = _INFO.unpack(fcntl.ioctl(pidfd, _GET_INFO, asked))
    except OSError:
        return None
    return os.waitstatus_to_exitcode(answer[-1]) if answer[0] & _HAS_STATUS else None
