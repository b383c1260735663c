"""Mutual TLS of JAX's coordination service, with this job's or the program's certificate."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: The arguments of initialize().
ARGUMENTS = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")


def uses_tls(filled: Mapping[str, Any]) -> bool:
    """Return whether a call of initialize(), or JAX's configuration, sets TLS arguments."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return any(filled.get(name) or getattr(config, f"jax_{name}", None) for name in ARGUMENTS)
