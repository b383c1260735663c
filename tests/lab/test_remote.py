"""Agents on other hosts, over a real sshd on loopback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jobs import PROGRAMS, Jobs, eventually
from remote import Sshd, needs_sshd, transports

from mcjax_launch.wire import checksum


@pytest.fixture
def sshd(jobs: Jobs, tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(tmp_path, jobs.token)
    yield server
    server.end()


@needs_sshd
def test_jax_runs_over_ssh(jobs: Jobs, sshd: Sshd) -> None:
    ended = jobs.run("--hosts", "a:2,localhost", "--via", sshd.via, "-d", 2, PROGRAMS / "toy.py")
    assert ended.status == 0, ended.stderr
    for label in ("0 a", "1 a", "2 localhost"):
        assert f"[{label}] process {label[0]} of 3" in ended.stdout


@needs_sshd
def test_hosts_are_read_from_stdin(jobs: Jobs, sshd: Sshd) -> None:
    text = f"a slots=2 # two\nb port={sshd.port}\nc\n"
    options = ["--via", sshd.via, "-n", "3", "echo", "{host}"]
    command = [sys.executable, "-m", "mcjax_launch", "--hosts", "-", *options]
    done = subprocess.run(
        command, input=text.encode(), env=jobs.environment(), capture_output=True, timeout=60
    )
    assert done.returncode == 0
    shown = sorted(done.stdout.decode().splitlines())
    assert shown == ["[0 a] a", "[1 a] a", "[2 b] b"]


@needs_sshd
def test_remote_rank_has_the_environment_of_its_host(jobs: Jobs, sshd: Sshd) -> None:
    env = {"LOCAL_SECRET": "s", "HANDED": "on it goes"}
    script = "echo [$LOCAL_SECRET] [$HANDED]"
    ended = jobs.run("--hosts", "a", "--via", sshd.via, "-x", "HANDED", "sh", "-c", script, env=env)
    assert ended.stdout == "[0] [] [on it goes]\n"


@needs_sshd
@pytest.mark.parametrize("victim", ["launcher", "transport", "session", "agent"])
def test_killed_link_of_the_ssh_chain_leaves_nothing(jobs: Jobs, sshd: Sshd, victim: str) -> None:
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
        told = {
            "transport": "its ssh client was killed by SIGKILL",
            "session": "its agent exited unexpectedly",
            "agent": "its agent was killed by SIGKILL",
        }
        assert told[victim] in ended.report


def _is_guardian(process: psutil.Process) -> bool:
    """The first Python below sshd."""
    try:
        parent = process.parent()
        return (
            "-I -S -c" in " ".join(process.cmdline())
            and parent is not None
            and parent.name() in ("sshd", "sshd-session")  # the second from OpenSSH 9.8 on
        )
    except psutil.NoSuchProcess:
        return False


@needs_sshd
def test_sync_copies_the_working_directory(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
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
    options = ["--hosts", "a,b", "--via", sshd.via]
    options += "--sync src --sync demo.py --sync run.sh".split()
    ended = jobs.run(*options, "./run.sh", cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    for label in ("0 a", "1 b"):
        assert f"[{label}] from the package 300000 300000" in ended.stdout
    assert "__pycache__" not in ended.stdout
    stages = {line.split()[-1] for line in ended.stdout.splitlines() if line.endswith("/stage")}
    assert len(stages) == 2
    eventually(lambda: not any(os.path.exists(stage) for stage in stages), 5)


@needs_sshd
def test_hosts_of_one_home_keep_files_together(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    """Two jobs at once from folders that differ, each on hosts that share ~/.cache."""
    kept = tmp_path / "cache/mcjax-launch/kept"
    running = []
    for name in ("one", "two"):
        (tmp_path / name / "pkg").mkdir(parents=True)
        for number in range(40):
            (tmp_path / name / "pkg" / f"m{number}.py").write_text(f"VALUE = {number}\n" * 999)
        (tmp_path / name / "show.sh").write_text(f"echo {name} $(cat pkg/*.py | cksum)\n")
        options = ["--hosts", "node[1-6]", "--via", sshd.via, "--sync", ".", "sh", "show.sh"]
        running.append((name, options))
    started = [jobs.start(*options, cwd=tmp_path / name) for name, options in running]
    told = {line.partition("] ")[2] for job in started for line in job.finish().stdout.splitlines()}
    assert sorted(line.split()[0] for line in told) == ["one", "two"]
    assert len({line.split()[1] for line in told}) == 1
    contents = [path for path in kept.iterdir() if not path.name.startswith(".")]
    assert all(checksum.compute(path.read_bytes()) == path.name for path in contents)
    assert len(contents) == 40 + 2 + 1 == len(list(kept.iterdir()))  # and the agent's code
    name, options = running[0]
    ended = jobs.run(*options, cwd=tmp_path / name, env={"MCJAX_DEBUG": "frames"})
    assert ended.status == 0
    assert ended.stdout.count("one") == 6 and "Lacks(" not in ended.stderr
    assert ended.stderr.count("Loading(has_code=True)") == 6


@needs_sshd
def test_sync_never_writes_through_a_link(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "nas").mkdir()
    (tmp_path / "nas" / "big.bin").write_bytes(b"x" * 200_000)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").symlink_to(tmp_path / "nas")
    options = ["--hosts", "localhost,a", "--via", sshd.via]
    options += "--sync data --sync . --sync data/big.bin".split()
    ended = jobs.run(*options, "sh", "-c", "wc -c < data/big.bin", cwd=tmp_path / "work")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("200000\n") == 2
    assert (tmp_path / "nas" / "big.bin").stat().st_size == 200_000


@needs_sshd
def test_big_file_is_synced_in_little_memory(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 40)
    options = ["--hosts", "a", "--via", sshd.via, "--sync", "big"]
    running = jobs.start(*options, "sh", "-c", "wc -c big; sleep 0.5", cwd=tmp_path)
    running.read_until(str(40 << 20))
    assert psutil.Process(running.process.pid).memory_info().rss < 60 << 20
    assert running.finish().status == 0


@needs_sshd
def test_many_hosts_share_one_sshd(jobs: Jobs, sshd: Sshd) -> None:
    """With sshd's own MaxStartups, which refuses some of ten connections at once."""
    ended = jobs.run("--hosts", "node[01-32]", "--via", sshd.via, "true", limit=100)
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.seconds < 60


@needs_sshd
def test_refused_key_gets_a_hint(jobs: Jobs, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "authorized_keys").write_text("")
    ended = jobs.run("--hosts", "a", "--via", sshd.via, "true")
    assert ended.status == 255
    assert "host a: " in ended.report and "Permission denied" in ended.report
    assert "ssh-copy-id a" in ended.report
