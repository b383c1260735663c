"""Agents on other hosts, over a real sshd on loopback and over a fake ssh."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jobs import PROGRAMS, Jobs, eventually
from remote import FAKE_SSH, Sshd, needs_sshd, transports

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.transport import bootstrap
from mcjax_launch.transport.client import ssh_argv, template_argv


@pytest.fixture
def sshd(jobs: Jobs, tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(tmp_path, jobs.token)
    yield server
    server.end()


# --- the command that goes to a host ---


def test_ssh_argv() -> None:
    argv = ssh_argv(Host(name="h", user="me", port=2222, slots=1), "x")
    assert argv[0] == "ssh"
    assert argv[-4:] == ["2222", "--", "me@h", "exec sh -c 'x'"]
    assert "BatchMode=yes" in argv


TEMPLATES = {
    "sudo -u me ssh -oServerAliveInterval=1 {host}": [
        "-u",
        "me",
        "ssh",
        "BatchMode=yes",
        "h",
        "exec sh -c 'x y'",
    ],
    "ssh -F cfg -- me@{host}": ["-F", "cfg", "--", "me@h", "exec sh -c 'x y'"],
    "ssh -F cfg {host}": ["BatchMode=yes", "-F", "cfg", "h", "exec sh -c 'x y'"],
    "gcloud ssh {host} --command={command}": ["h", "--command=exec sh -c 'x y'"],
    "kubectl exec -i {host} --": ["exec", "-i", "h", "--", "sh", "-c", "x y"],
    "docker exec -i {host}": ["exec", "-i", "h", "sh", "-c", "x y"],
    "pod-sh {host} sh -c {command}": ["h", "sh", "-c", "exec sh -c 'x y'"],
    "my-ssh {host}": ["h", "exec sh -c 'x y'"],
    "bash -c 'ssh {host} {command}'": ["-c", "ssh h 'exec sh -c '\"'\"'x y'\"'\"''"],
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_template(template: str) -> None:
    argv = template_argv(template, Host(name="h", slots=1), "x y")
    assert [word for word in argv[1:] if word in TEMPLATES[template]] == TEMPLATES[template]


@pytest.mark.parametrize("template", ["ssh", "ssh 'x", ""])
def test_bad_template(template: str) -> None:
    with pytest.raises(LaunchError, match="--via"):
        template_argv(template, Host(name="h", slots=1), "x")


def test_the_loader_needs_no_quoting() -> None:
    assert not set("'\"\\$`!\n") & set(bootstrap.loader())


def test_all_that_the_agent_imports_is_streamed() -> None:
    """In an interpreter that cannot see the installed package."""
    code = bootstrap.loader().replace("exec(", "sys.argv=['x'];exec(")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], input=bootstrap.payload(), capture_output=True
    )
    assert b"mcjax-launch agent" in done.stdout, done.stderr
    assert done.stderr == b""


# --- a real sshd ---


@needs_sshd
def test_two_hosts(jobs: Jobs, sshd: Sshd) -> None:
    program = "import os; print(os.environ['JAX_PROCESS_ID'], os.environ['MCJAX_LOCAL_PROCESS_ID'])"
    ended = jobs.run("--hosts", "a:2,b", "--via", sshd.via, sys.executable, "-c", program)
    assert ended.status == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["[0 a] 0 0", "[1 a] 1 1", "[2 b] 2 0"]


@needs_sshd
def test_jax_over_ssh(jobs: Jobs, sshd: Sshd) -> None:
    ended = jobs.run("--hosts", "a:2,localhost", "--via", sshd.via, "-d", 2, PROGRAMS / "toy.py")
    assert ended.status == 0, ended.stderr
    for label in ("0 a", "1 a", "2 localhost"):
        assert f"[{label}] process {label[0]} of 3" in ended.stdout


@needs_sshd
def test_hosts_from_a_file_and_from_stdin(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    text = f"a slots=2 # two\nb port={sshd.port}\nc\n"
    (tmp_path / "hosts.txt").write_text(text)
    options = ["--via", sshd.via, "-n", "3", "echo", "{host}"]
    ended = jobs.run("--hosts", tmp_path / "hosts.txt", *options)
    assert sorted(ended.stdout.split()) == sorted(
        ["[0", "a]", "a", "[1", "a]", "a", "[2", "b]", "b"]
    )
    command = [sys.executable, "-m", "mcjax_launch", "--hosts", "-", *options]
    done = subprocess.run(
        command, input=text.encode(), env=jobs.environment(), capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.count(b"a] a") == 2


@needs_sshd
def test_a_bad_hosts_file(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("a\nb slots=none\n")
    ended = jobs.run("--hosts", tmp_path / "hosts.txt", "true")
    assert ended.status == 2
    assert f"{tmp_path}/hosts.txt:2: slots=none" in ended.report
    ended = jobs.run("--hosts", "no/hosts.txt", "true")
    assert (ended.status, "no/hosts.txt: no such file" in ended.report) == (2, True)


@needs_sshd
def test_per_host_settings(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "py").symlink_to(sys.executable)
    (tmp_path / "x.py").write_text("import os; print(os.getcwd())")
    (tmp_path / "hosts").write_text(f"a python={tmp_path}/py chdir={tmp_path}\n")
    options = ["--hosts", tmp_path / "hosts", "--via", sshd.via]
    assert jobs.run(*options, "x.py").stdout == f"[0] {tmp_path}\n"


@needs_sshd
def test_the_environment_is_the_hosts_own(jobs: Jobs, sshd: Sshd) -> None:
    env = {"LOCAL_SECRET": "s", "HANDED": "on it goes"}
    script = "echo [$LOCAL_SECRET] [$HANDED]"
    ended = jobs.run("--hosts", "a", "--via", sshd.via, "-x", "HANDED", "sh", "-c", script, env=env)
    assert ended.stdout == "[0] [] [on it goes]\n"


@needs_sshd
def test_output_of_any_size_and_logs_here(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    options = ["--hosts", "a,b", "--via", sshd.via, "--log-dir", tmp_path / "logs"]
    ended = jobs.run(*options, "seq", 200_000)
    assert ended.stdout.count("\n") == 400_000
    assert (tmp_path / "logs" / "1.out").read_text().endswith("\n200000\n")


@needs_sshd
@pytest.mark.parametrize("culprit", [0, 3])
def test_failure_anywhere_ends_all(jobs: Jobs, sshd: Sshd, culprit: int) -> None:
    script = f"[ $JAX_PROCESS_ID = {culprit} ] && exit 7; setsid sleep 1000 & exec sleep 1000"
    ended = jobs.run("--hosts", "a:2,b:2", "--via", sshd.via, "bash", "-c", script)
    assert ended.status == 7
    assert f"rank {culprit} on {'ab'[culprit // 2]} failed: exit status 7" in ended.report
    assert "3 ended by SIGTERM" in ended.report


@needs_sshd
@pytest.mark.parametrize("victim", ["launcher", "transport", "session", "agent"])
def test_nothing_is_left_when_a_link_of_the_chain_is_killed(
    jobs: Jobs, sshd: Sshd, victim: str
) -> None:
    script = "setsid sleep 1000 & trap '' TERM; echo ready; while :; do sleep 1000; done"
    running = jobs.start("--hosts", "a,b", "--via", sshd.via, "--grace", "1", "bash", "-c", script)
    running.read_until("ready", 2)
    launcher = psutil.Process(running.process.pid)
    server = psutil.Process(sshd._process.pid).children(recursive=True)
    guardian = next(process for process in server if _is_guardian(process))
    {
        "launcher": launcher,
        "transport": transports(launcher)[0],
        "session": guardian.parents()[0],
        "agent": guardian.children()[0],
    }[victim].kill()
    ended = running.finish()
    eventually(lambda: not jobs.left(), 20)
    if victim != "launcher":
        assert ended.status == 255
        assert "its agent is gone" in ended.report


def _is_guardian(process: psutil.Process) -> bool:
    """The first Python below sshd."""
    try:
        parent = process.parent()
        return (
            "-I -S -c" in " ".join(process.cmdline())
            and parent is not None
            and parent.name() == "sshd"
        )
    except psutil.NoSuchProcess:
        return False


@needs_sshd
def test_sync(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    """The guide's way to a TPU pod (scp to every worker, then ssh to every worker) in one line."""
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "part.py").write_text("WORDS = 'from the package'")
    (tmp_path / "src" / "same.bin").write_bytes(b"x" * 300_000)
    (tmp_path / "src" / "again.bin").write_bytes(b"x" * 300_000)
    (tmp_path / "src" / "link").symlink_to("same.bin")
    (tmp_path / "src" / "__pycache__").mkdir()
    (tmp_path / "run.sh").write_text("#!/bin/sh\npwd; ls src; exec python3 demo.py\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "demo.py").write_text(
        "import sys; sys.path.append('src')\n"
        "import os, pkg.part\n"
        "print(pkg.part.WORDS, os.path.getsize('src/link'), os.path.getsize('src/again.bin'))"
    )
    options = [
        "--hosts",
        "a,b",
        "--via",
        sshd.via,
        *["--sync", "src", "--sync", "demo.py", "--sync", "run.sh"],
    ]
    ended = jobs.run(*options, "./run.sh", cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    for label in ("0 a", "1 b"):
        assert f"[{label}] from the package 300000 300000" in ended.stdout
    assert "__pycache__" not in ended.stdout
    stages = {line.split()[-1] for line in ended.stdout.splitlines() if line.endswith("/stage")}
    assert len(stages) == 2
    eventually(lambda: not any(os.path.exists(stage) for stage in stages), 5)


@needs_sshd
def test_sync_never_writes_through_a_link(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "nas").mkdir()
    (tmp_path / "nas" / "big.bin").write_bytes(b"x" * 200_000)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").symlink_to(tmp_path / "nas")
    options = [
        "--hosts",
        "localhost,a",
        "--via",
        sshd.via,
        *["--sync", "data", "--sync", ".", "--sync", "data/big.bin"],
    ]
    ended = jobs.run(*options, "sh", "-c", "wc -c < data/big.bin", cwd=tmp_path / "work")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("200000\n") == 2
    assert (tmp_path / "nas" / "big.bin").stat().st_size == 200_000


def test_a_slow_sync_is_no_silence(jobs: Jobs, tmp_path: Path) -> None:
    """Over a transport that takes longer for it than the launcher waits for a sign of life."""
    (tmp_path / "big").write_bytes(os.urandom(1_500_000))
    slow = "import os, sys, time\nwhile b := os.read(0, 20_000): os.write(1, b); time.sleep(0.2)"
    (tmp_path / "slow.py").write_text(slow)
    via = f"bash -c '{sys.executable} {tmp_path}/slow.py | eval \"$1\"' - {{command}} {{host}}"
    options = ["--hosts", "a", "--via", via, "--sync", "big"]
    ended = jobs.run(*options, "sh", "-c", "wc -c < big", cwd=tmp_path)
    assert ended.stdout == "[0] 1500000\n", ended.stderr
    assert ended.seconds > 13  # else it would prove nothing


def test_clients_that_end_together_are_all_named(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "h[1-8]", "--via", FAKE_SSH, "true", env={"FAKE_SSH": "key"})
    assert ended.status == 255
    assert "7 more: " in ended.report
    assert ended.seconds < 10


def test_interrupt_of_a_start(jobs: Jobs) -> None:
    running = jobs.start("--hosts", "a,b", "--via", FAKE_SSH, "true", env={"FAKE_SSH": "hang"})
    launcher = psutil.Process(running.process.pid)
    eventually(lambda: len(launcher.children()) == 2)
    running.process.send_signal(2)
    ended = running.finish()
    assert ended.status == 130
    assert ended.seconds < 8


def test_what_a_transport_has_started_ends_with_it(jobs: Jobs) -> None:
    via = "bash -c 'sleep 1000 & sleep 1000' - {host}"
    ended = jobs.run("--hosts", "a", "--via", via, "true", limit=40)
    assert ended.status == 255


def test_sync_of_what_is_no_file(jobs: Jobs, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "--sync", "pipe", "true", cwd=tmp_path)
    assert ended.status == 2
    assert "--sync pipe: neither a file nor a folder" in ended.report


def test_nothing_runs_anywhere_when_a_host_lacks_the_program(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    program = tmp_path / "one" / "prog"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    (tmp_path / "hosts").write_text(f"a chdir={tmp_path}/one\nb chdir={tmp_path}/two\n")
    ended = jobs.run("--hosts", tmp_path / "hosts", "--via", FAKE_SSH, "./prog")
    assert ended.status == 127
    assert "host b: ./prog: no such command there" in ended.report
    assert not (tmp_path / "ran").exists()


@needs_sshd
def test_sync_of_a_program(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text("print('ran')")
    options = ["--hosts", "a", "--via", sshd.via]
    assert jobs.run(*options, "--sync", "demo.py", "demo.py", cwd=tmp_path).stdout == "[0] ran\n"
    ended = jobs.run(*options, "--sync", "other.py", "demo.py", cwd=tmp_path)
    assert ended.status == 2
    assert "--sync other.py: no such file or folder" in ended.report


@needs_sshd
def test_a_big_file_is_synced_without_holding_it(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 40)
    command = [
        "--hosts",
        "a",
        "--via",
        sshd.via,
        "--sync",
        "big",
        "sh",
        "-c",
        "wc -c big; sleep 0.5",
    ]
    running = jobs.start(*command, cwd=tmp_path)
    running.read_until(str(40 << 20))
    assert psutil.Process(running.process.pid).memory_info().rss < 60 << 20
    assert running.finish().status == 0


@needs_sshd
def test_many_hosts_on_one_sshd(jobs: Jobs, sshd: Sshd) -> None:
    """With sshd's own MaxStartups, which refuses some of ten connections at once."""
    ended = jobs.run("--hosts", "node[01-64]", "--via", sshd.via, "true", limit=100)
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.seconds < 60


@needs_sshd
def test_memory_with_many_hosts(jobs: Jobs, sshd: Sshd) -> None:
    running = jobs.start(
        "--hosts", "node[01-16]:4", "--via", sshd.via, "sh", "-c", "echo ready; exec sleep 1000"
    )
    running.read_until("ready", 64)
    assert psutil.Process(running.process.pid).memory_info().rss < 60 << 20
    running.process.terminate()
    assert running.finish().status == 143


@needs_sshd
def test_one_bad_host_of_many(jobs: Jobs, sshd: Sshd) -> None:
    with sshd.config.open("r+") as config:
        rest = config.read()
        config.seek(0)
        config.write(f"Host node07\n  HostName 127.0.0.1\n  Port 1\n{rest}")
    ended = jobs.run("--hosts", "node[01-16]", "--via", sshd.via, "echo", "started")
    assert (ended.status, ended.out) == (255, b"")
    assert ended.stderr.count("\n") == 1
    assert "host node07: ssh: connect to host 127.0.0.1 port 1: Connection refused" in ended.report


@needs_sshd
def test_a_key_that_is_refused(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "authorized_keys").write_text("")
    ended = jobs.run("--hosts", "a", "--via", sshd.via, "true")
    assert ended.status == 255
    assert "host a: " in ended.report and "Permission denied" in ended.report
    assert "ssh-copy-id a" in ended.report


@needs_sshd
def test_a_host_key_that_has_changed(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    key = (tmp_path / "id.pub").read_text().split()[1]
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} ssh-ed25519 {key}\n")
    sshd.config.write_text(sshd.config.read_text().replace("Checking no", "Checking yes"))
    ended = jobs.run("--hosts", "a", "--via", sshd.via, "true")
    assert ended.status == 255
    assert "ost key verification failed" in ended.report or "HAS CHANGED" in ended.report


# --- a fake ssh ---


FAILURES = {
    "unknown": "Could not resolve hostname b",
    "changed": "REMOTE HOST IDENTIFICATION HAS CHANGED",
    "key": "Permission denied (publickey)",
    "timeout": "Connection timed out",
    "no python": "not found",
}


@pytest.mark.parametrize("mode", FAILURES)
def test_a_host_that_cannot_be_used(jobs: Jobs, mode: str) -> None:
    ended = jobs.run(
        "--hosts", "a,b", "--via", FAKE_SSH, "--python", "python3", "echo", "started", env={"FAKE_SSH": f"{mode}@b"}
    )  # fmt: skip
    assert (ended.status, ended.out) == (255, b"")
    assert "host b: " in ended.report
    assert FAILURES[mode] in ended.report
    assert ended.report.count("\n") == 0
    assert "(" in ended.report  # a hint


def test_a_host_that_swallows_the_connection(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "a,b", "--via", FAKE_SSH, "true", env={"FAKE_SSH": "hang@b"})
    assert ended.status == 255
    assert "host b: no answer within 14 s (Welcome to the swamp)" in ended.report
    assert ended.seconds < 25


def test_refused_connections_are_tried_again(jobs: Jobs, tmp_path: Path) -> None:
    env = {"FAKE_SSH": "refused", "FAKE_SSH_STATE": str(tmp_path)}
    ended = jobs.run("--hosts", "a,b,c", "--via", FAKE_SSH, "true", env=env)
    assert (ended.status, ended.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_banners_and_noisy_profiles_do_no_harm(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "echo", "x", env={"FAKE_SSH": "banner"})
    assert (ended.status, ended.stdout, ended.stderr) == (0, "[0] x\n", "")


@pytest.mark.parametrize("shell", ["sh", "bash", "fish", "tcsh"])
def test_login_shells(jobs: Jobs, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: apt install {shell}")
    env = {"FAKE_SHELL": shell}
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "echo", "$HOME 'x'", env=env)
    assert (ended.status, ended.stdout) == (0, "[0] $HOME 'x'\n"), ended.stderr


def test_an_old_python_on_the_host(jobs: Jobs, tmp_path: Path) -> None:
    old = tmp_path / "oldpython"
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.stderr.write(\"3.6.9 (old)\"); sys.exit(93)'\n"
    )
    old.chmod(0o755)
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, "--python", old, "true")
    assert ended.status == 255
    assert "host a: its Python 3.6.9 is too old, 3.9 is needed" in ended.report


@pytest.mark.jax
def test_no_jax_on_the_host(jobs: Jobs, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    (tmp_path / "hosts").write_text(f"a\nb python={tmp_path}/bare/bin/python\n")
    ended = jobs.run("--hosts", tmp_path / "hosts", "--via", FAKE_SSH, PROGRAMS / "toy.py")
    assert ended.status == 255
    assert f"host b: {tmp_path}/bare/bin/python has no jax" in ended.report


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["-C", "/no/where", "true"], 255, "host a: /no/where: no such directory"),
        (["missing.py"], 127, "host a: missing.py: no such file in "),
        (["no-such-command"], 127, "host a: no-such-command: no such command there"),
        (["--python", "/no/python", "-m", "x"], 255, "host a: "),
        (["-n", "9", "true"], 2, "-n 9: the hosts have 1 slot;"),
    ],
)
def test_what_a_host_lacks(jobs: Jobs, args: list[str], status: int, words: str) -> None:
    ended = jobs.run("--hosts", "a", "--via", FAKE_SSH, *args)
    assert (ended.status, ended.out) == (status, b"")
    assert words in ended.report


def test_no_such_transport(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "a", "--via", "no-such-ssh {host}", "true")
    assert ended.status == 255
    assert "no-such-ssh: No such file or directory; is it installed?" in ended.report


def test_dry_run_reaches_nobody(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "u@a:2,b", "--dry-run", "x.py")
    assert ended.status == 0
    assert "# rank 1 on u@a" in ended.stdout
    assert "JAX_COORDINATOR_ADDRESS=a:PORT" in ended.stdout
