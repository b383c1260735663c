"""How a connection that changes bytes shows in what comes before an agent's greeting."""

import pytest

from mcjax_launch.transport.mangling import describe_mangling, is_text
from mcjax_launch.wire.frames import MAGIC, encode_message
from mcjax_launch.wire.messages import VERSION, Greeting, Ping

SAID = MAGIC + encode_message(Greeting(VERSION)) + encode_message(Ping())
CHANGED = {
    "NUL bytes are missing": SAID.replace(b"\0", b""),
    "line ends have become CR LF": SAID.replace(b"\n", b"\r\n"),
    "bytes have been changed": SAID.replace(b"\n", b"?"),
    "its beginning is missing": SAID[len(MAGIC) :],
}


@pytest.mark.parametrize("how", CHANGED)
def test_altered_bytes_are_recognized(how: str) -> None:
    assert describe_mangling(b"Welcome\n" + CHANGED[how]) == how


def test_no_conclusion_before_all_has_come() -> None:
    """Nor from what a login prints."""
    assert [describe_mangling(b"Welcome\n" + MAGIC[:count]) for count in range(len(MAGIC))].count(
        ""
    ) == len(MAGIC)
    assert describe_mangling(b"mcjax-launch 0.3: see the manual\n\0\xff[]") == ""


def test_readable_text_is_recognized() -> None:
    assert all(
        map(is_text, ("", "Permission denied", "Zugriff verweigert: \N{POUND SIGN}", "\tx" * 9))
    )
    assert not is_text(bytes(range(200, 240)).decode("utf-8", "replace"))
    assert not is_text("a\x10b\x1f\x0b")
