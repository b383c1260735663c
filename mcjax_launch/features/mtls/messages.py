"""Message that brings a host the job's certificate."""

from __future__ import annotations

from ...wire.messages import ToAgent

NAME = "mtls"


class Certificate(ToAgent):
    """Certificate, sent before the start, for the ranks of this host, with its key, as PEM.

    Args:
        text: the certificate.
        key: its key, which is never printed.
        required: a rank fails if its jax has no mutual TLS.

    """

    text: str
    key: str
    required: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}(required={self.required})"
