"""What a client without streams starts connects to the launcher's side: nobody else can."""

import os
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from jobs import eventually

import mcjax_launch
from mcjax_launch.kernel.transport import call_back, client, handshake

ROOT = str(Path(mcjax_launch.__file__).parents[1])
# Says on which words it was started, waits, and then does what an agent's start does.
CLIENT = 'printf %s "$1" > words; while [ ! -e go ]; do sleep 0.02; done; exec "$2" -c "$1"'
ECHO = ";import sys,shutil;shutil.copyfileobj(sys.stdin.buffer,sys.stdout.buffer)"


class Relay:
    """The launcher's side as a process, with a client that waits until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        words = ["sh", "-c", CLIENT, "sh", call_back.CALL + ECHO, sys.executable]
        own = client._CALLED_BACK.format(root=ROOT)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", own, "localhost", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        )
        eventually((folder / "words").exists)
        (self.key_file,) = (folder / "state" / "mcjax-launch").iterdir()
        self.text = self.key_file.read_text()

    @property
    def words(self) -> str:
        return (self._folder / "words").read_text()

    @property
    def port(self) -> int:
        found = re.search(r"^call\(\[.*\], (\d+), ", self.text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def led_astray(self, listener: socket.socket, then: str = "") -> "subprocess.Popen[str]":
        """Start what the client would start, with another address in place of this one."""
        there = f"call(['127.0.0.1'], {listener.getsockname()[1]},"
        path = self._folder / "led_astray"
        path.write_text(re.sub(r"^call\(\[.*\], \d+,", there, self.text, flags=re.MULTILINE))
        command = [sys.executable, "-c", call_back.code(str(path)) + then]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def go(self) -> None:
        (self._folder / "go").touch()

    def echoes(self, data: bytes) -> bool:
        out, err = self.process.communicate(data, timeout=60)
        assert self.process.returncode == 0, err
        return out == data


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    started = Relay(tmp_path)
    yield started
    started.go()
    with started.process as process:
        process.kill()


def test_bytes_in_both_directions(relay: Relay) -> None:
    """More than a connection holds, while the other end answers; then the key is gone."""
    relay.go()
    assert relay.echoes(os.urandom(20 << 20))
    assert not relay.key_file.exists()


def test_only_the_user_can_read_the_key(relay: Relay) -> None:
    own = Path(f"/proc/{relay.process.pid}")
    shown = relay.words + (own / "cmdline").read_text() + (own / "environ").read_text()
    *_, key = re.findall(r"b'.*'|b\".*\"", relay.text)
    assert key not in shown and str(list(eval(key)))[1:-1].replace(" ", "") not in shown
    assert stat.S_IMODE(relay.key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(relay.key_file.parent.stat().st_mode) == 0o700


def test_strangers_neither_get_in_nor_hold_it_up(relay: Relay) -> None:
    with ExitStack() as stack:
        for _ in range(call_back._MOST_HELLOS + 50):
            stack.enter_context(relay.connect())
        guesser = stack.enter_context(relay.connect())
        nonce = guesser.recv(handshake.NONCE_BYTES)
        hello = os.urandom(handshake.NONCE_BYTES)
        guess = handshake.proof(b"agent", bytes(32), nonce + hello, guesser.getpeername())
        guesser.sendall(hello + guess)
        assert guesser.recv(1) == b""
        echoing = stack.enter_context(relay.connect())  # sends back what it is sent
        nonce = echoing.recv(handshake.NONCE_BYTES)
        echoing.sendall(nonce * 2)
        assert echoing.recv(1) == b""
        relay.go()
        assert relay.echoes(b"hello")


def test_nobody_else_can_listen_at_its_address(relay: Relay) -> None:
    relay.go()
    eventually(lambda: not relay.key_file.exists())
    for host in ("127.0.0.1", ""):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind((host, relay.port))
    assert relay.echoes(b"hello")


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(1 << 16):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def test_a_relay_of_both_proofs_is_refused(relay: Relay) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = relay.led_astray(listener)
        with listener.accept()[0] as theirs, relay.connect() as ours:
            back = threading.Thread(target=_pass_on, args=(ours, theirs))
            back.start()
            _pass_on(theirs, ours)
            back.join()
        _, said = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert said == (
        "cannot connect to mcjax-launch at 127.0.0.1 (the connection was closed: "
        "the launcher's side takes only this job's own)\n"
    )
    relay.go()
    assert relay.echoes(b"hello")


def test_the_host_refuses_a_listener_without_the_key(relay: Relay) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = relay.led_astray(listener, ";print(input())")
        with listener.accept()[0] as theirs:
            theirs.sendall(bytes(handshake.NONCE_BYTES))
            hello = theirs.recv(handshake.HELLO_BYTES, socket.MSG_WAITALL)
            theirs.sendall(hello[handshake.NONCE_BYTES :] + b"print('stolen')\n")
            out, said = agent.communicate(timeout=60)
    assert (agent.returncode, out) == (255, "")
    assert "127.0.0.1 (the process there does not know this job's key)" in said


def test_hosts_without_a_common_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_back, "_SHOWN_S", 0)
    path = tmp_path / "call-1"
    ended = subprocess.run(
        [sys.executable, "-c", call_back.code(str(path))], capture_output=True, text=True
    )
    assert ended.returncode == 255
    assert ended.stderr == (
        f"{path} is not on this host, which needs the job's key: "
        "set XDG_STATE_HOME to a folder of yours that all hosts share\n"
    )


def test_a_folder_that_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "mcjax-launch"
    folder.mkdir()
    folder.chmod(0o750)
    with pytest.raises(OSError, match="not a folder that is yours alone"):
        call_back.write_key(["127.0.0.1"], 5, b"key")
    folder.chmod(0o700)
    folder.rename(tmp_path / "another")
    folder.symlink_to(tmp_path / "another")
    with pytest.raises(OSError, match="not a folder that is yours alone"):
        call_back.write_key(["127.0.0.1"], 5, b"key")


def test_a_client_that_starts_nothing(tmp_path: Path) -> None:
    """Its own status; and no key is left."""
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    own = [sys.executable, "-I", "-S", "-c", client._CALLED_BACK.format(root=ROOT), "n1"]
    ended = subprocess.run(
        [*own, "sh", "-c", "exit 7"], env=environ, capture_output=True, text=True
    )
    assert ended.returncode == 7
    ended = subprocess.run([*own, "/no/such"], env=environ, capture_output=True, text=True)
    assert ended.returncode == 255
    assert ended.stderr == "/no/such: No such file or directory: is it installed?\n"
    assert list((tmp_path / "mcjax-launch").iterdir()) == []
