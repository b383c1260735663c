"""Handshake on a connection that an agent makes: both sides prove that they know a key.

The launcher's side sends a nonce; the host's side answers with its own nonce and a proof; the
launcher's side answers with another proof. A proof is an HMAC over both nonces and the address
where the two sides have met, so a process that listens elsewhere and relays cannot reuse either
proof.

The text of this file also runs on the host, before the agent, so it works on Python 3.9 and imports
nothing from mcjax-launch.
"""

import hmac
import os
import socket
from functools import cache

NONCE_BYTES = KEY_BYTES = 32
PROOF_BYTES = 32
#: Length of the host's message: its nonce and its proof.
HELLO_BYTES = NONCE_BYTES + PROOF_BYTES
_ANSWER_S = 9
_FAILED = 255


def compute_proof(side: bytes, key: bytes, nonces: bytes, place: bytes) -> bytes:
    """Return the proof that only a holder of the key can compute for this connection.

    Args:
        side: b"launcher" or b"agent", so that neither proof can be sent back as the other.
        key: secret that both sides share.
        nonces: nonce of the launcher, followed by the nonce of the agent.
        place: result of `compute_connection_address`, the address of the connection.

    """
    return hmac.digest(key, b" ".join((side, place, nonces)), "sha256")


def compute_connection_address(launcher: tuple[str, int], agent: tuple[str, int]) -> bytes:
    """Return the address of the connection as a value that both sides compute alike.

    It is the launcher's address. If both sides are on one machine, the machine's id is appended,
    because an address such as 127.0.0.1 exists on every machine.

    Args:
        launcher: address of the launcher's end, as this side's socket reports it.
        agent: address of the agent's end.

    """
    host = _simplify_address(launcher[0])
    own = read_machine_id() if host == _simplify_address(agent[0]) else ""
    return f"{host} {launcher[1]} {own}".encode()


def _simplify_address(host: str) -> str:
    """Return an IP address without `::ffff:` and zone, so that IPv4 and IPv6 sockets agree."""
    return host.partition("%")[0].replace("::ffff:", "")


@cache
def read_machine_id() -> str:
    """Return an id that is unique to this machine and network namespace; "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read() + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def call(addresses: list[str], port: int, key: bytes) -> None:
    """Connect descriptors 0 and 1 to the first address whose server proves that it knows the key.

    If no address does, end the process with status 255 and a line on stderr.
    """
    failures = []
    for address in addresses:
        try:
            stream = socket.create_connection((address, port), _ANSWER_S)
            if not _authenticate(stream, key):
                raise OSError("the process there does not know this job's key")
        except OSError as error:
            failures.append(f"{address} ({error.strerror or error})")
            continue
        stream.settimeout(None)
        os.dup2(stream.fileno(), 0)
        os.dup2(stream.fileno(), 1)
        return
    os.write(2, f"cannot connect to mcjax-launch at {' or '.join(failures)}\n".encode())
    os._exit(_FAILED)


def _authenticate(stream: socket.socket, key: bytes) -> bool:
    where = compute_connection_address(stream.getpeername(), stream.getsockname())
    own = os.urandom(NONCE_BYTES)
    nonces = _read(stream, NONCE_BYTES) + own
    stream.sendall(own + compute_proof(b"agent", key, nonces, where))
    answer = _read(stream, PROOF_BYTES)
    return hmac.compare_digest(answer, compute_proof(b"launcher", key, nonces, where))


def _read(stream: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = stream.recv(size - len(found))
        if not more:
            raise OSError("the connection was closed: the launcher accepts only this job's agents")
        found += more
    return found
