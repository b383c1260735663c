"""Long messages in a few packets: names and checksums of a folder's files are alike."""

from __future__ import annotations

import binascii
import zlib

from .codec import Malformed, to_json
from .messages import Compressed, ToAgent


def compress(message: ToAgent) -> Compressed:
    """Return a message that contains another message, compressed."""
    packed = zlib.compress(to_json(message).encode())
    return Compressed(binascii.b2a_base64(packed, newline=False).decode())


def expand(message: Compressed) -> ToAgent:
    """Return the message that is in a compressed message.

    Raises:
        Malformed: there is none.

    """
    try:
        text = zlib.decompress(binascii.a2b_base64(message.packed)).decode()
    except (ValueError, zlib.error) as error:
        raise Malformed(str(error)) from None
    return ToAgent.of(text)
