"""The message that brings a host the job's certificate."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent

NAME = "mtls"


class Certificate(ToAgent):
    """Before the start: the certificate for the ranks of this host, and its key, as PEM.

    Args:
        text: of the certificate.
        key: is shown nowhere.
        required: a rank whose jax has no mutual TLS is to fail.

    """

    text: str
    key: str
    required: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}(required={self.required})"
