"""Checksums, by which launcher and agents name contents that hosts keep."""

from __future__ import annotations

try:  # without OpenSSL, which hashlib would load: an agent's start is waited for
    from _blake2 import blake2b
except ImportError:  # a Python built without it
    from hashlib import blake2b

_BYTES = 20


def begin() -> blake2b:
    """Return an object that computes a checksum; its `hexdigest()` is the checksum."""
    return blake2b(digest_size=_BYTES)


def compute(data: bytes) -> str:
    """Return the checksum of some bytes: 40 hexadecimal digits, never equal for other bytes."""
    return blake2b(data, digest_size=_BYTES).hexdigest()
