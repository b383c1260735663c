"""The programs of ranks that run under another command: which process it is, and how it ended."""

from __future__ import annotations

import os
import signal
import struct

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Of include/uapi/linux/pidfd.h: 16 bytes, 11 numbers, and the status as `wait` would give it.
_INFO = struct.Struct("QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_HAS_STATUS = 1 << 3


class WrappedPrograms:
    """Finds them by what their hooks say, and asks the kernel for their exit statuses.

    A wrapper may swallow the status (gdb, py-spy), and is the only one who could wait for it.

    Args:
        commands: of each wrapped rank, without its wrapper.

    """

    def __init__(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._commands = commands
        self._found: dict[int, tuple[int, int]] = {}  # rank -> pid and pidfd of its program

    def is_program(self, rank: int, pid: int) -> bool:
        """Whether a Python process of a rank is its program, and not a helper."""
        if rank not in self._found and rank in self._commands and self._runs(rank, pid):
            try:
                self._found[rank] = pid, os.pidfd_open(pid)
            except (AttributeError, OSError):  # no Linux, or an old one; or it has ended
                self._found[rank] = pid, -1
        return rank in self._found and self._found[rank][0] == pid

    def pid(self, rank: int) -> int | None:
        """The program of a rank, as far as it is known."""
        return self._found[rank][0] if rank in self._found else None

    def ended(self) -> set[int]:
        """The ranks whose program is over, while their wrapper still writes what it has seen."""
        import select

        pidfds = {pidfd: rank for rank, (_, pidfd) in self._found.items() if pidfd >= 0}
        poll = select.poll()
        for pidfd in pidfds:
            poll.register(pidfd, select.POLLIN)
        return {pidfds[pidfd] for pidfd, _ in poll.poll(0)}

    def status(self, rank: int, wrappers: int, sent: Sequence[int]) -> int:
        """How a rank has ended, now that its wrapper has: an exit status, or minus a signal.

        Args:
            rank: of this host.
            wrappers: the wrapper's own end, which counts if nothing else is known.
            sent: the signals that have asked the rank to end.

        """
        own = self._own_status(rank)
        if own is None:
            own = wrappers
        if own == -signal.SIGKILL and wrappers not in (0, -signal.SIGTERM):
            own = wrappers  # gdb has killed it when it left, and ends by the signal that it showed
        if own == -signal.SIGKILL and sent:
            return -sent[0]  # which has ended the wrapper, and so its program
        return own

    def _own_status(self, rank: int) -> int | None:
        pidfd = self._found.pop(rank, (0, -1))[1]
        if pidfd < 0:
            return None
        try:
            return _status(pidfd)
        finally:
            os.close(pidfd)

    def _runs(self, rank: int, pid: int) -> bool:
        """Whether a process runs the rank's command, or a script that this names."""
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:
            return False
        name, *arguments = self._commands[rank]
        at = len(words) - len(arguments) - 1
        same_name = at >= 0 and os.path.basename(words[at]) == os.path.basename(name)
        return same_name and words[at + 1 :] == arguments


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
