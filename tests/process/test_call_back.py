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
from mcjax_launch.kernel.transport import call_back, handshake, remote_commands

ROOT = str(Path(mcjax_launch.__file__).parents[1])
# Says on which words it was started, waits, and then does what an agent's start does.
CLIENT = 'printf %s "$1" > words; while [ ! -e go ]; do sleep 0.02; done; exec "$2" -c "$1"'
ECHO = ";import sys,shutil;shutil.copyfileobj(sys.stdin.buffer,sys.stdout.buffer)"


class Relay:
    """The launcher's side as a process, with a client that waits until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        words = ["sh", "-c", CLIENT, "sh", call_back.CALL + ECHO, sys.executable]
        own = remote_commands._CALLED_BACK.format(root=ROOT)
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
        path.chmod(0o600)
        listener.settimeout(30)
        command = [sys.executable, "-c", call_back.make_call_code(str(path)) + then]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def go(self) -> None:
        (self._folder / "go").touch()

    def echoes(self, data: bytes) -> bool:
        eventually(lambda: not self.key_file.exists())
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


def test_relay_passes_bytes_in_both_directions(relay: Relay) -> None:
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


def test_strangers_neither_connect_nor_delay(relay: Relay) -> None:
    with ExitStack() as stack:
        for _ in range(call_back._MOST_HELLOS + 50):
            stack.enter_context(relay.connect())
        guesser = stack.enter_context(relay.connect())
        nonce = guesser.recv(handshake.NONCE_BYTES)
        hello = os.urandom(handshake.NONCE_BYTES)
        where = handshake.compute_connection_address(guesser.getpeername(), guesser.getsockname())
        guess = handshake.compute_proof(b"agent", bytes(32), nonce + hello, where)
        guesser.sendall(hello + guess)
        assert guesser.recv(1) == b""
        echoing = stack.enter_context(relay.connect())  # sends back what it is sent
        nonce = echoing.recv(handshake.NONCE_BYTES)
        echoing.sendall(nonce * 2)
        assert echoing.recv(1) == b""
        relay.go()
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
        "the launcher accepts only this job's agents)\n"
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


def test_equal_addresses_on_two_machines_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay between them has the same address on both."""
    here, there = ("127.0.0.1", 5), ("127.0.0.1", 9)
    ours = handshake.compute_connection_address(here, there)
    monkeypatch.setattr(handshake, "read_machine_id", lambda: "another")
    assert handshake.compute_connection_address(here, there) != ours
    assert handshake.compute_connection_address(here, ("10.0.0.9", 9)) == handshake.compute_connection_address(("::ffff:127.0.0.1", 5), ("10.0.0.9", 1))  # fmt: skip


def test_file_open_to_other_users_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "call-1"
    path.write_text("print('ran')")
    path.chmod(0o600)
    command = [sys.executable, "-c", call_back.make_call_code(str(path))]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "ran\n"
    path.chmod(0o640)
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (255, "")
    assert ended.stderr == f"{path} is not a file that is yours alone\n"
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    command[-1] = call_back.make_call_code(str(tmp_path / "link"))
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
        command[-1] = call_back.make_call_code(str(path))
        assert subprocess.run(command, capture_output=True, text=True).stdout == ""


def test_launcher_that_dies_early_leaves_no_key(relay: Relay) -> None:
    assert relay.process.stdin is not None
    relay.process.stdin.close()
    assert relay.process.wait(30) == 255
    assert not relay.key_file.exists()


def test_keys_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old, new = (call_back.write_key(["127.0.0.1"], 5, b"key") for _ in range(2))
    os.utime(old, (0, 0))
    call_back.write_key(["127.0.0.1"], 5, b"key")
    assert (os.path.exists(old), os.path.exists(new)) == (False, True)


def test_hosts_without_a_common_home_get_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_back, "_SHOWN_S", 0)
    path = tmp_path / "call-1"
    ended = subprocess.run(
        [sys.executable, "-c", call_back.make_call_code(str(path))], capture_output=True, text=True
    )
    assert ended.returncode == 255
    assert ended.stderr == (
        f"{path} does not exist on this host, which needs the job's key there: "
        "set XDG_STATE_HOME to a folder of yours that all hosts share\n"
    )


def test_folder_readable_by_other_users_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    ("client_words", "status", "said"),
    [
        (["sh", "-c", "exit 7"], 7, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["/no/such"], 255, "/no/such: No such file or directory: is it installed?\n"),
    ],
)
def test_failing_client_is_reported_and_leaves_no_key(
    tmp_path: Path, client_words: list[str], status: int, said: str
) -> None:
    """Its own status; and no key is left."""
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    own = [sys.executable, "-I", "-S", "-c", remote_commands._CALLED_BACK.format(root=ROOT), "n1"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*own, *client_words], env=environ, stdin=pipe, stderr=pipe) as process:
        assert process.wait(60) == status
        assert process.stderr is not None
        assert process.stderr.read().decode() == said
    assert list((tmp_path / "mcjax-launch").iterdir()) == []
