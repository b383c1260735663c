"""Relay for clients that do not carry stdin and stdout: the agent connects back to this process.

The relay is a separate process. Its standard input and output are the launcher's pipes, as ssh's
would be. The agent's host reads the relay's address and a key from a file in the user's home, which
all hosts share, because other users can read command lines and often the environment.
"""

from __future__ import annotations

import hmac
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Sequence

from mcjax_launch.kernel.transport import handshake
from mcjax_launch.kernel.wire import own_paths
from mcjax_launch.kernel.wire.exit_status import HOST_LOST, compute_exit_status
from mcjax_launch.kernel.wire.loop import GONE, HANG_UP, READ, Loop, Signals
from mcjax_launch.kernel.wire.system import NEW_FILE
from mcjax_launch.kernel.wire.uplink import Uplink

#: Placeholder in the client's command line for the code that connects.
CALL = "@CALL@"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HELLO_S = 5.0
# More connections at once than this are an attack: the oldest is closed.
_MOST_HELLOS = 256
_CLIENT_ENDS_S = 5.0
_MUCH = 1 << 18
_PREFIX = "call-"
_OLD_S = 24 * 3600
# Seconds that the host's side waits for a file that a network file system may show late.
_SHOWN_S = 10


def main(host: str, client: Sequence[str]) -> int:
    """Run a client that starts an agent on a host; relay bytes between the launcher and the agent.

    Args:
        host: name of the host.
        client: words of the client's command line; `CALL` in them stands for Python code.

    Returns:
        Exit status of the client; 255 if no agent has connected.

    """
    for signum in (signal.SIGUSR1, signal.SIGUSR2):  # a scheduler sends these to the ranks
        signal.signal(signum, signal.SIG_IGN)
    key = os.urandom(handshake.KEY_BYTES)
    listener = _listen()
    try:
        path = write_key(_find_addresses(host), listener.getsockname()[1], key)
    except OSError as error:
        where = error.filename or get_key_folder()
        os.write(2, f"{where}: {error.strerror}: the job's key is kept there; {_OTHER}\n".encode())
        return HOST_LOST
    try:
        words = [word.replace(CALL, make_call_code(path)) for word in client]
        return _Relay(listener, key, path).run(words)
    finally:
        _remove(path)


# --- the key, in a file that only the user can read ---

_OTHER = "set XDG_STATE_HOME to a folder of yours that all hosts share"


def get_key_folder() -> str:
    """Return the path of the user's folder for key files."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "mcjax-launch")


def write_key(addresses: Sequence[str], port: int, key: bytes) -> str:
    """Write a key file: Python code that connects to one of these addresses; return its path.

    Raises:
        OSError: the folder cannot be written, or other users can read it.

    """
    folder = get_key_folder()
    if not os.path.isabs(folder):
        raise OSError(0, "no home folder is known", folder)
    own_paths.make_private_folder(folder)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(0, "not a folder that is yours alone (chmod 700)", folder)
    _remove_old(folder)
    path = os.path.join(folder, f"{_PREFIX}{os.urandom(6).hex()}")
    with open(handshake.__file__, encoding="utf-8") as source:
        text = f"{source.read()}\ncall({list(addresses)!r}, {port}, {key!r})\n"
    fd = os.open(path, NEW_FILE, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        _remove(path)
        raise
    return path


def _remove_old(folder: str) -> None:
    """Remove key files more than a day old, left by relays that were killed."""
    for entry in os.scandir(folder):
        if entry.name.startswith(_PREFIX) and time.time() - entry.stat().st_mtime > _OLD_S:
            _remove(entry.path)


def make_call_code(path: str) -> str:
    """Return Python code that waits for a file and runs it if it belongs to this user alone.

    It contains no quotes, backslashes, dollars or exclamation marks, so it passes unchanged through
    any shell.
    """
    missing = f"{path} does not exist on this host, which needs the job's key there: {_OTHER}\n"
    foreign = f"{path} is not a file that is yours alone\n"
    lines = (
        "import os,time",
        f"path=bytes({list(os.fsencode(path))})",
        f"found=any(os.path.exists(path)or time.sleep(0.1)for n in range({_SHOWN_S * 10}))",
        f"found or(os.write(2,bytes({list(os.fsencode(missing))})),os._exit({HOST_LOST}))",
        "file=os.open(path,os.O_RDONLY|os.O_NOFOLLOW|os.O_NONBLOCK)",
        "about=os.fstat(file)",
        "ours=about.st_uid==os.geteuid()and about.st_mode>>12==8 and about.st_mode&63==0",
        f"ours or(os.write(2,bytes({list(os.fsencode(foreign))})),os._exit({HOST_LOST}))",
        "exec(open(file).read())",
    )
    return ";".join(lines).replace(", ", ",")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


# --- addresses at which the host's side can reach this machine ---


def _find_addresses(host: str) -> list[str]:
    """Return the addresses at which a host can reach this machine, the most likely first.

    The result is ["127.0.0.1"] if this machine has only loopback addresses.
    """
    found: list[str] = []
    for name, port in ((host, 9), (socket.gethostname(), 0)):
        try:
            answers = socket.getaddrinfo(name, port or None, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, _, _, address in answers:
            found.append(
                str(address[0]) if not port else _find_source_address(family, kind, address)
            )
    all_ = [address.partition("%")[0] for address in dict.fromkeys(found) if address]
    real = [address for address in all_ if not address.startswith("127.") and address != "::1"]
    return real or ["127.0.0.1"]


def _find_source_address(family: int, kind: int, address: object) -> str:
    """Return this machine's source address for packets to `address`; "" without a route."""
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


# --- connections, until one has proved to come from the host ---


class Hellos:
    """Set of new connections, each with a few seconds to prove that its other end knows the key.

    Args:
        listener: listening socket; it stays open, so that no other process can take its address.
        key: key for this host's agent.
        loop: event loop that watches the sockets.
        on_met: called once, with the first connection whose other end has proved the key.

    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        loop: Loop,
        on_met: Callable[[socket.socket], object],
    ) -> None:
        self._listener = listener
        self._key = key
        self._loop = loop
        self._on_met = on_met
        self._hellos: dict[socket.socket, _Hello] = {}
        handshake.read_machine_id()  # cached before attackers can use up all descriptors
        listener.setblocking(False)
        loop.watch(listener.fileno(), READ, lambda ready: self._accept())

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) at which the oldest connection is closed; None if there is none."""
        return next((hello.due for hello in self._hellos.values()), None)

    def expire(self, now: float) -> None:
        """Close the connections that have not proved the key in time."""
        for stream in [stream for stream, hello in self._hellos.items() if hello.due <= now]:
            self._close(stream)

    def end(self) -> None:
        """Close all connections, and accept no more."""
        self._loop.forget(self._listener.fileno())
        for stream in list(self._hellos):
            self._close(stream)

    def _accept(self) -> None:
        if len(self._hellos) >= _MOST_HELLOS:
            self._close(next(iter(self._hellos)))
        try:
            stream, _ = self._listener.accept()
        except OSError:  # the connection is closed again, or too many files are open
            if self._hellos:
                self._close(next(iter(self._hellos)))
            return
        stream.setblocking(False)
        hello = self._hellos[stream] = _Hello()
        self._loop.watch(stream.fileno(), READ, lambda ready: self._read(stream))
        self._send(stream, hello.nonce)

    def _read(self, stream: socket.socket) -> None:
        hello = self._hellos[stream]
        try:
            more = stream.recv(handshake.HELLO_BYTES - len(hello.read))
        except OSError:
            more = b""
        hello.read += more
        if not more:
            self._close(stream)
        elif len(hello.read) == handshake.HELLO_BYTES:
            self._judge(stream, hello)

    def _judge(self, stream: socket.socket, hello: _Hello) -> None:
        theirs, said = hello.read[: handshake.NONCE_BYTES], hello.read[handshake.NONCE_BYTES :]
        nonces = hello.nonce + theirs
        where = handshake.compute_connection_address(stream.getsockname(), stream.getpeername())
        if not hmac.compare_digest(
            said, handshake.compute_proof(b"agent", self._key, nonces, where)
        ):
            self._close(stream)
        elif self._send(stream, handshake.compute_proof(b"launcher", self._key, nonces, where)):
            del self._hellos[stream]
            self._loop.forget(stream.fileno())
            self._on_met(stream)

    def _send(self, stream: socket.socket, data: bytes) -> bool:
        """Send a few bytes without waiting; close the connection and return False on failure."""
        try:
            if stream.send(data) == len(data):
                return True
        except OSError:
            pass
        self._close(stream)
        return False

    def _close(self, stream: socket.socket) -> None:
        if self._hellos.pop(stream, None) is not None:
            self._loop.forget(stream.fileno())
            stream.close()


class _Hello:
    """State of a connection whose other end has not proved the key yet."""

    def __init__(self) -> None:
        self.nonce = os.urandom(handshake.NONCE_BYTES)
        self.read = b""
        self.due = time.monotonic() + _HELLO_S


# --- the relayed connection ---


class _Relay:
    """Relay of one client process: copies between the launcher's pipes and the agent's connection.

    Args:
        listener: socket to which the agent connects.
        key: key that the agent must prove.
        path: path of the key file, removed once the agent has connected.

    """

    def __init__(self, listener: socket.socket, key: bytes, path: str) -> None:
        self._path = path
        self._loop = Loop()
        self._signals = Signals([signal.SIGCHLD, *_ENDING])
        self._loop.watch(self._signals.fd, READ, lambda ready: self._on_signal())
        self._loop.watch(0, HANG_UP, lambda ready: self._on_hang_up(ready))
        self._hellos = Hellos(listener, key, self._loop, self._on_agent_authenticated)
        self._client: subprocess.Popen[bytes] | None = None
        self._met = self._over = self._copied = False

    def run(self, words: Sequence[str]) -> int:
        """Start the client with these words and relay until the agent's side ends; see `main`."""
        try:
            # The client's streams do not carry the launcher's protocol.
            self._client = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=2)
        except OSError as error:
            os.write(2, f"{words[0]}: {error.strerror}: is it installed?\n".encode())
            return HOST_LOST
        while not self._over and not self._copied:
            self._loop.run_once([self._hellos])
        if not self._copied:
            return self._end_client()
        try:
            return compute_exit_status(self._client.wait(_CLIENT_ENDS_S))
        except subprocess.TimeoutExpired:
            return 0

    def _end_client(self) -> int:
        """End a client that started no agent; return its exit status, 255 if it ran or had 0."""
        assert self._client is not None
        status = self._client.poll()
        if status is None:
            self._client.terminate()
        return compute_exit_status(status or HOST_LOST)

    def _on_signal(self) -> None:
        """End the relay on a signal, or if the client ended before an agent connected."""
        ended = self._client is not None and self._client.poll() is not None
        told = any(signum in _ENDING for signum in self._signals.read())
        self._over = self._over or told or (ended and not self._met)

    def _on_hang_up(self, ready: int) -> None:
        """End the relay if the launcher closes its pipe before an agent has connected."""
        self._over = self._over or bool(ready & GONE)

    def _on_agent_authenticated(self, stream: socket.socket) -> None:
        self._met = True
        self._hellos.end()
        _remove(self._path)
        reading = stream.detach()
        writing = os.dup(reading)  # the loop keeps one watch for each descriptor
        _Copy(self._loop, 0, writing, lambda: _end_writing(writing))
        _Copy(self._loop, reading, 1, self._end)

    def _end(self) -> None:
        self._copied = True


def _end_writing(fd: int) -> None:
    """Shut a connection down for writing and close `fd`; the other side reads the data's end."""
    with socket.socket(fileno=fd) as stream:
        try:
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the connection is gone, and the reading direction notices that


class _Copy:
    """Copy of all bytes from one descriptor to another, read only as fast as they are written.

    Args:
        loop: event loop that watches both descriptors.
        source: descriptor to read from.
        target: descriptor to write to.
        on_end: called once, when all bytes are written or can no longer be written.

    """

    def __init__(self, loop: Loop, source: int, target: int, on_end: Callable[[], object]) -> None:
        self._loop = loop
        self._source = source
        self._on_end = on_end
        self._ended = False
        os.set_blocking(source, False)
        self._out = Uplink(target, loop, self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        if self._ended:
            self._on_end()
        else:
            self._loop.watch(self._source, READ, lambda ready: self._read())

    def _read(self) -> None:
        try:
            data = os.read(self._source, _MUCH)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._out.send(data)
        if not data or self._out.broken:
            self._ended = True
        if self._ended or not self._out.empty:
            self._loop.forget(self._source)
        if self._ended and (self._out.empty or self._out.broken):
            self._on_end()
