"""Connection of the hook to its host's agent, and imports that are removed from sys.modules."""

from __future__ import annotations

import os
import sys

from ..machine import system
from ..wire.source_lines import SWITCHES

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from ..wire.hook_messages import HookMessage


# A C timeval: seconds to wait for the agent, which may have hundreds of processes to start first.
_LONGEST_WAIT = (10).to_bytes(8, sys.byteorder) + bytes(8)
# As many as faulthandler shows.
_MOST_FRAMES = 100


class AgentLink:
    """Connection to the agent, usable only in the process that made it, not in forks of it.

    Messages sent before the connection is made are kept until `send_held`; if there is no agent
    then, they are dropped.

    Attributes:
        is_below: True if this process is a child process of a rank; see the module `below`.

    """

    def __init__(self) -> None:
        self.is_below = False
        self._pid = 0
        self._fd = -1
        self._file = (0, 0)
        self._held: list[HookMessage] | None = []

    def connect(self, path: str, process_id: str) -> None:
        """Connect to the agent, and send it the first message (`Hello`).

        Args:
            path: path of the agent's unix socket.
            process_id: value of JAX_PROCESS_ID with which this process was started.

        Raises:
            OSError: there is no agent, or connecting takes too long.

        """
        self._fd = _connect_socket(path)
        self._pid = os.getpid()
        self._file = _read_file_id(self._fd)
        self._dump_stacks_at_limit()
        self._greet(process_id, self.dump_stacks_on_signal(self._fd))

    def send_held(self) -> None:
        """Send the messages that were kept until the connection was made."""
        held, self._held = self._held or [], None
        for message in held:
            self.send(message)

    @property
    def is_of_this_process(self) -> bool:
        """True in the process that made the connection, False in its forks."""
        return os.getpid() == self._pid

    def _greet(self, process_id: str, dumps: bool) -> None:
        """Send `Hello` as literal JSON, because most processes need no other message or codec."""
        quoted = f'"{process_id}"'
        if not process_id.isdigit():  # set by the program, to anything
            from ..wire.codec import to_json

            quoted = to_json(process_id)
        self._send(f'["Hello",[{self._pid},{quoted},{str(dumps).lower()}]]')

    def send(self, message: HookMessage, *, below: bool = False) -> None:
        """Send a message to the agent; drop it if the agent is gone.

        Args:
            message: the message; in a child process of a rank, only features' messages are sent.
            below: True to send any message from a child process of a rank.

        """
        if self.is_below and not (below or message.feature):
            return
        if self._held is not None and not self._pid:
            self._held.append(message)
        elif self.is_of_this_process:
            from ..wire.codec import to_json

            self._send(to_json(message))

    def _send(self, line: str) -> None:
        # The newline before it: a stack may be half written.
        rest = b"\n" + line.encode("utf-8", "replace") + b"\n"
        try:
            # The program may have closed this descriptor, and opened a file with the same number.
            while rest and _read_file_id(self._fd) == self._file:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            pass

    def dump_stacks_on_crash(self) -> None:
        """Make faulthandler send all threads' stacks to the agent if this process crashes.

        Does nothing if the program has enabled faulthandler itself.
        """
        try:
            import faulthandler

            if not faulthandler.is_enabled() and _read_file_id(self._fd) == self._file:
                faulthandler.enable(self._fd, all_threads=True)
        except (ImportError, OSError, RuntimeError):
            pass

    def _dump_stacks_at_limit(self) -> None:
        """Make faulthandler send stacks to the agent on SIGXCPU, the end by the CPU time limit."""
        try:
            import _signal  # without signal's own imports
            import faulthandler

            if _signal.getsignal(_signal.SIGXCPU) == _signal.SIG_DFL:
                faulthandler.register(_signal.SIGXCPU, self._fd, chain=True)
        except (ImportError, AttributeError, OSError, RuntimeError):
            pass

    @staticmethod
    def dump_stacks_on_signal(fd: int) -> bool:
        """Make this process write stacks to `fd` on three signals; return whether it can.

        On two signals faulthandler dumps the main thread, or all threads. That crashes a thread
        that runs Python. Such a thread answers the third signal, the question, between two
        bytecodes.
        """
        _answer_question(fd)
        try:
            import faulthandler

            for all_threads, signum in enumerate(system.get_dump_signals()):
                if signum:
                    faulthandler.register(signum, fd, all_threads=bool(all_threads))
        except (ImportError, AttributeError):
            return False
        return True

    def dump_others_when_asked(self) -> None:
        """On a third signal, send all threads' stacks while no other thread runs Python."""
        from .questions import answer_signal, runs_one_thread

        if runs_one_thread():
            # Interrupt: a handler would otherwise run only after a wait for a lock.
            answer_signal(system.get_others_signal(), self._dump_others, interrupt=True)

    def _dump_others(self, _signum: int, _frame: FrameType | None) -> None:
        try:
            import faulthandler

            if self.is_of_this_process and _read_file_id(self._fd) == self._file:
                faulthandler.dump_traceback(self._fd, all_threads=True)
                os.write(self._fd, _format_thread_switches().encode())
        except Exception:
            pass


def _answer_question(fd: int) -> None:
    """Make Python write the main thread's stack to `fd`, as faulthandler does, on a signal."""
    pid, file = os.getpid(), _read_file_id(fd)

    def answer(_signum: int, frame: FrameType | None) -> None:
        # All in one frame, because few may be left until the limit on recursion.
        try:
            if os.getpid() != pid or _read_file_id(fd) != file:
                return
            lines = ["Stack (most recent call first):"]
            while frame is not None and len(lines) <= _MOST_FRAMES:
                code, line = frame.f_code, "???" if frame.f_lineno is None else frame.f_lineno
                file_name, name = ascii(code.co_filename)[1:-1], ascii(code.co_name)[1:-1]
                lines.append(f'  File "{file_name}", line {line} in {name}')
                frame = frame.f_back
            text = "\n".join([*lines, ""]).encode()
            while text:
                text = text[os.write(fd, text) :]
        except Exception:
            pass

    try:
        import _signal  # without signal's own imports

        _signal.signal(system.get_question_signal(), answer)
        _signal.siginterrupt(system.get_question_signal(), False)
    except (ValueError, OSError):  # not in the main thread
        pass


def _format_thread_switches() -> str:
    """Return a line per thread with its numbers of voluntary and involuntary context switches.

    A thread with equal numbers in two dumps has not run in between. On macOS, numbers are missing.
    """
    import threading

    lines = []
    for number, thread in list(threading._active.items()):  # type: ignore[attr-defined]
        status = system.read_system_text(f"/proc/self/task/{thread.native_id}/status").splitlines()
        counts = [line.split()[1] for line in status if "ctxt_switches:" in line]
        lines.append(f"{SWITCHES}0x{number:016x} {' '.join(counts)}\n")
    return "".join(lines)


def _connect_socket(path: str) -> int:
    """Return a descriptor connected to a unix socket; it stays open until the process ends.

    Raises:
        OSError: there is no agent, or connecting takes too long.

    """
    import _socket  # without socket's own imports

    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # If many ranks start together, connect() waits; with settimeout() it would fail at once.
        link.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _LONGEST_WAIT)
        link.connect(path)
        link.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, bytes(len(_LONGEST_WAIT)))
        return link.detach()
    finally:
        link.close()


def _read_file_id(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def import_privately(name: str) -> Any:
    """Import and return a module; remove it and all that it imported from sys.modules.

    The program then imports its own copies.
    """
    before = set(sys.modules)
    module = __import__(name)
    for imported in set(sys.modules) - before:
        del sys.modules[imported]
    return module
