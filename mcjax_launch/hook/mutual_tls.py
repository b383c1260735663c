"""Mutual TLS of JAX's coordination service, with this job's or the program's certificate."""

from __future__ import annotations

import sys

from .coordinator import split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

#: The arguments of initialize().
CERTIFICATE = "mtls_cert_file"
_PREFIX = "mtls_peer_uri_prefix"
ARGUMENTS = (CERTIFICATE, "mtls_key_file", "mtls_ca_file", _PREFIX)


def find_tls_arguments(filled: Mapping[str, Any]) -> dict[str, str]:
    """Return the TLS arguments that are set in the call or JAX's configuration; {} without TLS.

    Args:
        filled: the arguments of initialize().

    """
    config = getattr(sys.modules.get("jax"), "config", None)
    found = {name: filled.get(name) or getattr(config, f"jax_{name}", None) for name in ARGUMENTS}
    return {name: str(value) for name, value in found.items() if value}


def check_name(filled: Mapping[str, Any]) -> None:
    """Check that the certificate of process 0 names the coordinator's address.

    JAX itself reports nothing: every process retries until initialize() times out.

    Args:
        filled: the arguments of initialize().

    Raises:
        RuntimeError: no name in the certificate can match.

    """
    ours = find_tls_arguments(filled)
    if filled.get("process_id") != 0 or CERTIFICATE not in ours or _PREFIX in ours:
        return
    host = split(str(filled["coordinator_address"]))[0]
    names = _read_names(ours[CERTIFICATE])
    if names is None or "/" in host or any(_matches(host, name) for name in names):
        return
    kind = "DNS" if _as_ip(host) is None else "IP"
    raise RuntimeError(
        f"{CERTIFICATE}={ours[CERTIFICATE]}: the certificate names "
        f"{', '.join(names) or 'nothing'}, not the coordinator's address: add {kind}:{host} to its "
        f"subjectAltName, or set {_PREFIX} and name a URI"
    )


def _read_names(path: str) -> list[str] | None:
    """Return the names in a certificate; None if they cannot be read."""
    try:
        import _ssl

        decoded: dict[str, Any] = _ssl._test_decode_cert(path)  # type: ignore[attr-defined]
    except Exception:  # a private function; JAX reports what is wrong with the file
        return None
    names = [name for _, name in decoded.get("subjectAltName", ())]
    return names or list(_iterate_common_names(decoded))


def _iterate_common_names(decoded: Mapping[str, Any]) -> Iterator[str]:
    """Yield the common names of a certificate that gRPC accepts as names of hosts."""
    for parts in decoded.get("subject", ()):
        for kind, value in parts:
            if kind == "commonName" and _as_ip(value) is None:
                yield value


def _matches(host: str, name: str) -> bool:
    """Return whether gRPC may accept a name in a certificate for a host."""
    address = _as_ip(host)
    if address is not None:
        return _as_ip(name) == address
    host, name = host.lower().rstrip("."), name.lower().rstrip(".")
    _, dot, domain = host.partition(".")
    return name in (host, f"*{dot}{domain}")


def _as_ip(text: str) -> object:
    """Return a text as an IP address; None if it is not an IP address."""
    import ipaddress

    try:
        return ipaddress.ip_address(text.strip().strip("[]"))
    except ValueError:
        return None
