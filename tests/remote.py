"""Start real ssh hosts: an sshd on loopback, and hosts in network namespaces."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from jobs import LAUNCHER, TOKEN, Ended, Jobs, Running, eventually

HERE = Path(__file__).parent
FAKE_SSH = f"{sys.executable} {HERE / 'fake_ssh'} {{host}}"
#: Where the system's own tools are, also those that PATH may lack.
SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
SSHD = shutil.which("sshd", path=SYSTEM_PATH)

needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="needs OpenSSH: apt install openssh-server"
)
needs_lab = pytest.mark.skipif(
    SSHD is None or shutil.which("ip", path=SYSTEM_PATH) is None or os.geteuid() != 0,
    reason="needs root, OpenSSH and iproute2: apt install openssh-server iproute2",
)


class Sshd:
    """A real sshd with its defaults (MaxStartups!) on a high port of loopback.

    Every host name goes to it. What it starts carries the jobs' token, so that leaks are seen. With
    SHLVL bash does not take itself for the first shell of a login, and reads no ~/.bashrc: what a
    developer has there may take long, or leave a lock behind when a test ends it.
    """

    def __init__(self, folder: Path, token: str) -> None:
        assert SSHD is not None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for name in ("id", "hostkey"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(key, check=True)
        shutil.copy(folder / "id.pub", folder / "authorized_keys")
        (folder / "sshd_config").write_text(
            f"""
Port {self.port}
ListenAddress 127.0.0.1
HostKey {folder}/hostkey
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv {TOKEN}={token} SHLVL=1 XDG_CACHE_HOME={folder}/cache
"""
        )
        self.config = folder / "config"
        self.config.write_text(
            f"""
Host *
  HostName 127.0.0.1
  Port {self.port}
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking no
  LogLevel ERROR
"""
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # for its privilege separation
        self.log = folder / "log"
        command = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        eventually(lambda: b"Server listening" in self.log.read_bytes(), 10)

    @property
    def via(self) -> str:
        return f"ssh -F {self.config} {{host}}"

    def end(self) -> None:
        for child in psutil.Process(self._process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.kill()
        self._process.wait()


class Lab:
    """Three hosts jh1 to jh3, each with its own address, name, boot id, /tmp and sshd; we are jh0.

    Args:
        base: a folder that all hosts have, as by NFS, as they have the project and its Python.
        prefix: of the hosts' names.
        count: of hosts.

    """

    def __init__(self, base: Path, prefix: str = "jh", count: int = 3) -> None:
        shared = (base, HERE.parent, sys.prefix)
        script = [str(HERE / "lab" / "lab.sh"), "-k", str(count)]
        command = [*script, "bash", "-c", 'echo "$LAB"; cat']
        self.hosts = [f"{prefix}{number + 1}" for number in range(count)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "SHARED": " ".join(map(str, shared)), "PREFIX": prefix},
        )
        assert self._process.stdout is not None
        self.folder = self._process.stdout.readline().decode().strip()
        (inside,) = psutil.Process(self._process.pid).children()
        self._enter = ["nsenter", "-t", str(inside.pid), "-n", "-m", "-u", "-i", "-p", "--"]
        hosts_files = Path(self.folder).glob("**/hosts")
        self._good_names = {path: path.read_text() for path in hosts_files}

    @property
    def via(self) -> str:
        return f"ssh -F {self.folder}/ssh_config {{host}}"

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)

    def inside(self, *command: str) -> str:
        """Run a command on jh0; what it prints."""
        done = subprocess.run([*self._enter, *command], capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def entering(self, host: str) -> list[str]:
        """What runs the command that follows on a host, without ssh."""
        script = str(HERE / "lab" / "hosts.sh")
        return [*self._enter, "env", f"LAB={self.folder}", script, "enter", host]

    def do(self, *args: str) -> str:
        """Run hosts.sh, e.g. `cut jh3`."""
        return self.inside("env", f"LAB={self.folder}", str(HERE / "lab" / "hosts.sh"), *args)

    def names(self, text: str | None = None) -> None:
        """Change what /etc/hosts says on all hosts; None for what each has as a rule."""
        for path, good in self._good_names.items():
            path.write_text(good if text is None else text)

    def processes(self, host: str) -> list[str]:
        """The commands of all that runs on a host, but for what makes it one."""
        shown = self.do("enter", host, "ps", "-e", "-o", "args=").splitlines()
        own = ("bash /tmp/jaxlab", "sleep infinity", "ps -e", "sshd: /usr/sbin/sshd")
        return [line for line in shown if not line.startswith(own)]

    def start(self, jobs: Jobs, hosts: str, *args: object) -> Running:
        """Start the launcher on jh0."""
        launcher = [*self._enter, *LAUNCHER]
        return jobs.start("--via", self.via, "--hosts", hosts, *args, launcher=launcher)

    def run(self, jobs: Jobs, hosts: str, *args: object) -> Ended:
        """Run it to its end; nothing may be left on any host."""
        ended = self.start(jobs, hosts, *args).finish()
        self.check_clean()
        return ended

    def check_clean(self, *hosts: str, limit: float = 20) -> None:
        """Nothing of a job is left on these hosts (all of them)."""
        for host in hosts or self.hosts:
            eventually(lambda host=host: not self.processes(host), limit)  # type: ignore[misc]

    def launcher(self, running: Running) -> psutil.Process:
        """The launcher itself: nsenter is between it and us."""
        return psutil.Process(running.process.pid).children()[0]


def transports(launcher: psutil.Process) -> list[psutil.Process]:
    """The launcher's ssh clients."""
    return [child for child in launcher.children() if child.name() == "ssh"]
