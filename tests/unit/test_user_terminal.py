"""The user's terminal, while others write on it too."""

import os
import tty

import pytest

from mcjax_launch.kernel.launcher import user_terminal
from mcjax_launch.kernel.wire.loop import Loop


class _NoKeeper:
    def __init__(self, *args: object) -> None:
        pass

    def end(self) -> None:
        pass


def test_what_others_have_written_meanwhile_is_not_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line editors leave a sequence behind the last line, with which a row begins."""
    screen, theirs = os.openpty()
    tty.setraw(theirs)
    monkeypatch.setattr(user_terminal, "_INPUT", theirs)
    monkeypatch.setattr(user_terminal, "_Keeper", _NoKeeper)
    loop = Loop()
    terminal = user_terminal.UserTerminal(loop, lambda keys: None, lambda: None)
    terminal.lend()
    terminal.write(b"(Pdb 0) c\r\n\x1b[?2004l")
    terminal.take_back()
    os.write(theirs, b"[0] be")
    terminal.lend()
    terminal.say(b"gun\n")
    seen = b""
    while not seen.endswith(b"begun\r\n"):  # the kernel passes it on bit by bit
        seen += os.read(screen, 1000)
    assert seen == b"(Pdb 0) c\r\n\x1b[?2004l[0] begun\r\n"
    terminal.close()
    for fd in (screen, theirs):
        os.close(fd)
    loop.close()
