"""A client that hands on no streams: what it starts connects to this process, which copies them.

It is a process of its own, from this file alone: its standard input and output are the launcher's
pipes, as those of ssh are. Whoever connects has to know a number that only the client's command
line says.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

#: What stands, in the client's words, for the code that connects.
CALL = "@CALL@"
_TOKEN_BYTES = 16
_HELLO_S = 5.0
_CONNECT_S = 9
_CLIENT_ENDS_S = 5.0
_MUCH = 1 << 18
_FAILED = 255


def main(host: str, client: Sequence[str]) -> int:
    """Run a client, and be the way to what it has started on a host; its exit status."""
    for signum in (signal.SIGUSR1, signal.SIGUSR2):  # a scheduler that sends these means ranks
        signal.signal(signum, signal.SIG_IGN)
    token = os.urandom(_TOKEN_BYTES)
    listener = _listen()
    code = call(_addresses(host), listener.getsockname()[1], token)
    words = [word.replace(CALL, code) for word in client]
    try:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=2)
    except OSError as error:
        os.write(2, f"{words[0]}: {error.strerror}: is it installed?\n".encode())
        return _FAILED
    # The end of a client that has not reached the host ends the wait.
    threading.Thread(target=_wake_at_end, args=(child, listener), daemon=True).start()
    stream = _accepted(listener, token)
    if stream is None:
        return child.wait() or _FAILED
    threading.Thread(target=_copy_in, args=(stream,), daemon=True).start()
    _copy_out(stream)
    try:
        return abs(child.wait(_CLIENT_ENDS_S))
    except subprocess.TimeoutExpired:
        return 0


def call(addresses: Sequence[str], port: int, token: bytes) -> str:
    """Python code that connects its standard input and output to the first address that answers.

    As it goes through shells of any kind, it has no quote, backslash, dollar or exclamation mark.
    """
    hosts = ",".join(f"bytes({list(address.encode())}).decode()" for address in addresses)
    lines = (
        "import os,socket",
        f"socket.setdefaulttimeout({_CONNECT_S})",
        "of=lambda h:socket.AF_INET6 if h.count(chr(58)) else socket.AF_INET",
        f"called=((socket.socket(of(h)),h) for h in [{hosts}])",
        f"line=next((s for s,h in called if s.connect_ex((h,{port}))==0),None)",
        f"line or os.write(2,bytes({list(_no_way(addresses))}))and os._exit({_FAILED})",
        "line.settimeout(None)",
        "socket.setdefaulttimeout(None)",  # the agent's own
        f"line.sendall(bytes({list(token)}))",
        "os.dup2(line.fileno(),0)",
        "os.dup2(line.fileno(),1)",
    )
    return ";".join(lines).replace(", ", ",")


def _no_way(addresses: Sequence[str]) -> bytes:
    return f"cannot connect to mcjax-launch at {' or '.join(addresses)}\n".encode()


def _addresses(host: str) -> list[str]:
    """The addresses at which a host can reach this machine, the most likely first."""
    found: list[str] = []
    for name, port in ((host, 9), (socket.gethostname(), 0)):
        try:
            answers = socket.getaddrinfo(name, port or None, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, _, _, address in answers:
            found.append(str(address[0]) if not port else _source(family, kind, address))
    real = [one.partition("%")[0] for one in dict.fromkeys(found) if one]
    return real or ["127.0.0.1"]


def _source(family: int, kind: int, address: object) -> str:
    """The address of ours from which packets to another would go; nothing is sent."""
    with socket.socket(family, kind) as probe:
        try:
            probe.connect(address)  # type: ignore[arg-type]
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError:
            pass  # the kernel has no IPv6
    return socket.create_server(("", 0))


def _wake_at_end(child: subprocess.Popen[bytes], listener: socket.socket) -> None:
    child.wait()
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has been closed meanwhile


def _accepted(listener: socket.socket, token: bytes) -> socket.socket | None:
    """The connection of what the client has started; None if the client has ended before."""
    with listener:
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return None
            stream.settimeout(_HELLO_S)
            try:
                if _read(stream, len(token)) == token:
                    stream.settimeout(None)
                    return stream
            except OSError:
                pass
            stream.close()


def _read(stream: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := stream.recv(size - len(found))):
        found += more
    return found


def _copy_in(stream: socket.socket) -> None:
    try:
        while piece := os.read(0, _MUCH):
            stream.sendall(piece)
        stream.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it is gone, which the other direction sees


def _copy_out(stream: socket.socket) -> None:
    try:
        while piece := stream.recv(_MUCH):
            while piece:
                piece = piece[os.write(1, piece) :]
    except OSError:
        pass  # it is gone, or the launcher is
    try:
        os.close(1)
    except OSError:
        pass


if __name__ == "__main__":
    status = main(sys.argv[1], sys.argv[2:])
    os._exit(status)  # a thread may wait for the launcher's input
