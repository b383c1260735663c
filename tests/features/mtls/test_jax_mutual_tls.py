"""Mutual TLS of JAX's coordination service: of the program's own, and of the launcher's."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from certificates import make_certificate, needs_openssl
from jobs import PROGRAMS, Jobs, Running
from remote import FAKE_SSH

pytestmark = [
    needs_openssl,
    pytest.mark.skipif(
        tuple(map(int, version("jax").split(".")[:2])) < (0, 12), reason="needs jax 0.12"
    ),
]

JOIN = """
import jax
jax.distributed.initialize({})
print("joined", jax.process_count())
"""


def python(arguments: str) -> tuple[object, ...]:
    """A job of two ranks that call initialize() with these arguments."""
    return ("-n", 2, "-d", 1, sys.executable, "-c", JOIN.format(arguments))


@pytest.mark.parametrize("way", ["arguments", "variables"])
def test_local_job_accepts_its_own_certificates(jobs: Jobs, tmp_path: Path, way: str) -> None:
    files = make_certificate(tmp_path, "IP:127.0.0.1")
    if way == "arguments":
        ended = jobs.run(*python(f"**{files}"))
    else:
        env = {f"JAX_{name.upper()}": path for name, path in files.items()}
        ended = jobs.run(*python(""), env=env)
    assert ended.stdout.count("joined 2\n") == 2, ended.stderr
    assert ended.stderr == ""


def test_verification_without_certificates_gets_a_hint(jobs: Jobs) -> None:
    ended = jobs.run(*python("verify_secure_credentials=True"))
    assert ended.status == 134
    assert "hint: JAX_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS, or verify_secure_cre" in ended.report


# --- several hosts: the launcher's own certificate ---

OVER_SSH = ("--hosts", "a,b", "--via", FAKE_SSH, "--python", sys.executable, "-d", 1)
STAYING, INTRUDER = PROGRAMS / "staying.py", PROGRAMS / "intruder.py"
AS_INTRUDER = {
    "nothing": lambda folder, job: {},
    "a certificate of its own": lambda folder, job: {
        **make_certificate(folder, f"URI:spiffe://mcjax/{job}/rank"),
        "mtls_peer_uri_prefix": f"spiffe://mcjax/{job}/",
    },
}


def joined(running: Running) -> list[str]:
    """Wait until both ranks have joined; return the coordinator's address and the job's id."""
    return running.read_until("\n", 2).partition("joined ")[2].split()[:2]


def intrude(folder: Path, address: str, files: dict[str, str]) -> int:
    """Have another process join as process 1; return its exit status."""
    words = [f"{name}={value}" for name, value in files.items()]
    command = [sys.executable, str(INTRUDER), address, *words]
    return subprocess.run(command, cwd=folder, capture_output=True).returncode


def test_no_outsider_can_join(jobs: Jobs, tmp_path: Path) -> None:
    done = tmp_path / "done"
    running = jobs.start(*OVER_SSH, STAYING, done)
    address, job = joined(running)
    for has, make_files in AS_INTRUDER.items():
        assert intrude(tmp_path, address, make_files(tmp_path, job)) != 0, has
    done.touch()
    ended = running.finish()
    assert (ended.status, ended.stdout.count("sum 1\n"), ended.stderr) == (0, 2, "")


def test_second_client_without_mtls_ends_the_job(jobs: Jobs, tmp_path: Path) -> None:
    """Which is why there is TLS: this test may fail once JAX does something about it."""
    running = jobs.start(*OVER_SSH, "--mtls", "off", STAYING, tmp_path / "never")
    intrude(tmp_path, joined(running)[0], {})
    assert running.finish().status == 134
