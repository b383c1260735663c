"""The first bytes of a connection that an agent makes: both sides prove that they know a key.

The launcher's side sends a nonce; the host's side answers with a nonce of its own and a proof; the
launcher's side answers with another proof. A proof is an HMAC over both nonces and the place where
the two have met: a process that listens elsewhere and relays cannot pass either of them on.

The text of this file also runs on the host, before the agent: Python 3.9, no module of ours.
"""

import hmac
import os
import socket
from functools import cache

NONCE_BYTES = KEY_BYTES = 32
PROOF_BYTES = 32
#: What the host's side sends: its nonce and its proof.
HELLO_BYTES = NONCE_BYTES + PROOF_BYTES
_ANSWER_S = 9
_FAILED = 255


def proof(side: bytes, key: bytes, nonces: bytes, place: bytes) -> bytes:
    """Return what only a holder of the key can say on this connection.

    Args:
        side: b"launcher" or b"agent", so that no proof can be sent back as the other.
        key: what both know.
        nonces: the launcher's and the agent's.
        place: where both have met.

    """
    return hmac.digest(key, b" ".join((side, place, nonces)), "sha256")


def place(launcher: tuple[str, int], agent: tuple[str, int]) -> bytes:
    """Return the place where both sides have met, as each of them knows it.

    It is the launcher's address. On one machine it is also that machine: an address such as
    127.0.0.1 is there on every one.

    Args:
        launcher: the address of the launcher's end, as the socket of this side gives it.
        agent: the same of the agent's end.

    """
    host = _plain(launcher[0])
    own = machine() if host == _plain(agent[0]) else ""
    return f"{host} {launcher[1]} {own}".encode()


def _plain(host: str) -> str:
    """Return an address as sockets of both families give it."""
    return host.partition("%")[0].replace("::ffff:", "")


@cache
def machine() -> str:
    """Return what no other machine, nor another network namespace, has; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read() + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def call(addresses: list[str], port: int, key: bytes) -> None:
    """Make descriptors 0 and 1 a connection to the first of these addresses that knows the key.

    Ends the process with status 255, and a line on stderr, if there is none.
    """
    failures = []
    for address in addresses:
        try:
            stream = socket.create_connection((address, port), _ANSWER_S)
            if not _meet(stream, key):
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


def _meet(stream: socket.socket, key: bytes) -> bool:
    where = place(stream.getpeername(), stream.getsockname())
    own = os.urandom(NONCE_BYTES)
    nonces = _read(stream, NONCE_BYTES) + own
    stream.sendall(own + proof(b"agent", key, nonces, where))
    answer = _read(stream, PROOF_BYTES)
    return hmac.compare_digest(answer, proof(b"launcher", key, nonces, where))


def _read(stream: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = stream.recv(size - len(found))
        if not more:
            raise OSError(
                "the connection was closed: the launcher's side takes only this job's own"
            )
        found += more
    return found
