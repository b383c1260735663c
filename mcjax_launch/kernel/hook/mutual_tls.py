"""Mutual TLS of JAX's coordination service, with this job's or the program's certificate."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: The arguments of initialize().
CERTIFICATE = "mtls_cert_file"
_PREFIX = "mtls_peer_uri_prefix"
ARGUMENTS = (CERTIFICATE, "mtls_key_file", "mtls_ca_file", _PREFIX)


def in_use(filled: Mapping[str, Any]) -> dict[str, str]:
    """Return the TLS arguments that are set in the call or JAX's configuration; {} without TLS.

    Args:
        filled: the arguments of initialize().

    """
    config = getattr(sys.modules.get("jax"), "config", None)
    found = {name: filled.get(name) or getattr(config, f"jax_{name}", None) for name in ARGUMENTS}
    return {name: str(value) for name, value in found.items() if value}
