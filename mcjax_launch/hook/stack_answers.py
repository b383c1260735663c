"""Answers of this process to the agent's question where its threads are.

Only Python itself reads its stacks: what a handler in C, or another thread, reads of a thread that
runs may be half made, and the process crashes. At first the main thread answers a signal, between
two bytecodes. Once JAX has started threads anyway, a thread of the hook's answers, even while the
main thread is in C code: it waits for a byte, and then for Python's lock (the GIL).
"""

from __future__ import annotations

import os
import sys

from ..machine import system
from ..wire.source_lines import END_OF_STACKS, HANDLING, MAIN_THREAD, is_users

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

# Of one thread, innermost first.
_MOST_FRAMES = 100
# Characters of the text of an exception.
_MOST_TEXT = 200
# More bytes than questions that an agent asks while it waits for an answer.
_MOST_QUESTIONS = 64
# A C timeval: seconds to wait for the agent, which may have hundreds of processes to start first.
_LONGEST_WAIT = (10).to_bytes(8, sys.byteorder) + bytes(8)


class Descriptor:
    """Descriptor of this process alone, which the program may close, and use for another file."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._pid = os.getpid()
        self._file = _read_file_id(fd)

    def write(self, data: bytes) -> None:
        """Write data; drop it if the descriptor is not ours any more, or its reader is gone."""
        try:
            while data and os.getpid() == self._pid and _read_file_id(self.fd) == self._file:
                data = data[os.write(self.fd, data) :]
        except OSError:
            pass


def answer_by_signal(to: Descriptor) -> None:
    """Let the main thread write its stack on a signal, from now on."""

    def answer(_signum: int, frame: FrameType | None) -> None:
        try:
            handled = _format_handled(sys.exc_info()[1])
            lines = [MAIN_THREAD, *_format_calls(frame), *handled, END_OF_STACKS, ""]
            to.write("\n".join(lines).encode())
        except Exception:  # few calls may be left until the limit on recursion
            pass

    try:
        import _signal  # without signal's own imports

        _signal.signal(system.get_question_signal(), answer)
    except (ValueError, OSError):  # not in the main thread
        pass


def answer_by_thread(path: str) -> None:
    """Start a thread that answers for all threads; do nothing if none can, or may, be started.

    Args:
        path: path of the agent's unix socket.

    """
    import _thread
    import threading

    # Without the GIL, other threads change their stacks while this one reads them.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return
    main = threading.main_thread().ident or 0
    try:
        _thread.start_new_thread(_answer_questions, (path, main))
    except RuntimeError:  # a limit
        pass


def _answer_questions(path: str, main: int) -> None:
    """Answer each byte with the stacks of all threads, until the agent hangs up."""
    try:
        import _signal

        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        agent = Descriptor(connect(path))
        agent.write(f'["Answering",[{os.getpid()}]]\n'.encode())
        while os.read(agent.fd, _MOST_QUESTIONS):
            agent.write("\n".join(_format_threads(main)).encode())
    except Exception:
        pass


def _format_threads(main: int) -> Iterator[str]:
    """Yield the lines of all threads' stacks but this one's, the main thread's first."""
    import _thread

    frames, errors = sys._current_frames(), sys._current_exceptions()
    del frames[_thread.get_ident()]
    yield MAIN_THREAD
    yield from _format_calls(frames.pop(main, None))
    yield from _format_handled(errors.get(main))
    for number, frame in frames.items():
        yield ""
        yield f"Thread 0x{number:016x} (most recent call first):"
        yield from _format_calls(frame)
        yield from _format_handled(errors.get(number))
    yield END_OF_STACKS
    yield ""


def _format_calls(frame: FrameType | None) -> list[str]:
    """Return a stack's calls as faulthandler writes them."""
    lines: list[str] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        code, line = frame.f_code, "???" if frame.f_lineno is None else frame.f_lineno
        file, name = ascii(code.co_filename)[1:-1], ascii(code.co_name)[1:-1]
        lines.append(f'  File "{file}", line {line} in {name}')
        frame = frame.f_back
    return lines


def _format_handled(found: BaseException | tuple[Any, ...] | None) -> list[str]:
    """Return a line on an exception that a thread handles, if it comes from the user's code.

    No code of the exception's runs: it may wait for what the thread holds. Up to Python 3.11 the
    exception is the second in a tuple.
    """
    error = found[1] if isinstance(found, tuple) else found
    place, traceback = "", error.__traceback__ if error is not None else None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_users(file):
            place = f"{os.path.basename(file)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    if not place or error is None:
        return []
    texts = (text for text in error.args if isinstance(text, str))
    text = next(texts, "").partition("\n")[0][:_MOST_TEXT]
    if isinstance(error, OSError):
        file = OSError.filename.__get__(error)  # no code of a subclass
        text += f": {file!r}" if type(file) is str else ""
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return [f"{HANDLING}{ascii(words)[1:-1]} ({ascii(place)[1:-1]})"]


def connect(path: str) -> int:
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
