"""The user's terminal, while others write on it too."""

import os
import tty

import pytest

from mcjax_launch.features.debugging import user_terminal
from mcjax_launch.machine.loop import Loop


class _NoKeeper:
    def __init__(self, *args: object) -> None:
        pass

    def end(self) -> None:
        pass


def test_output_of_other_processes_is_not_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line editors leave a sequence behind the last line, with which a row begins."""
    screen, theirs = os.openpty()
    tty.setraw(theirs)
    monkeypatch.setattr(user_terminal, "_INPUT", theirs)
    monkeypatch.setattr(user_terminal, "_Keeper", _NoKeeper)
    loop = Loop()
    terminal = user_terminal.UserTerminal(loop, lambda keys: None, lambda: None)
    terminal.lend()
    terminal.write(b"(Pdb 0) c\r\n\x1b[?2004l")
    terminal.reclaim()
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


@pytest.mark.parametrize(
    ("written", "fits"),
    [
        (b"", True),
        (b"line\r\n(Pdb) ", True),
        (b"(Pdb) " + b"x" * 80, False),
        (b"\x1b[?2004h(Pdb) p \x1b[Cx", True),
        (b"ipdb> \x1b[J", False),
        (b"\x1b[?1049h", False),
        (b"\x1b[?1049h full \x1b[?1049l\r\n(Pdb) ", True),
        (b"\x1b[?1049h full \r\n", False),
    ],
)
def test_row_that_fits_the_terminal_can_be_rewritten(written: bytes, fits: bool) -> None:
    row = user_terminal._Row()
    for at in range(len(written)):
        row.add(written[at : at + 1])
    whole = user_terminal._Row()
    whole.add(written)
    assert whole.fits(80) == fits
    if b"1049" not in written:  # a mode's sequence comes in one piece
        assert row.fits(80) == fits


def test_row_keeps_the_visible_text_only() -> None:
    row = user_terminal._Row()
    row.add(b"line\r\n\x1b[?2004l\r")
    assert row.shown == b""
    row.add(b"(Pdb) ")
    assert row.shown == b"(Pdb) "
