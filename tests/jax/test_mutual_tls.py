"""Mutual TLS of JAX's coordination service: of the program's own, and of the launcher's."""

import inspect
import sys
from pathlib import Path

import jax
import pytest
from certificates import make_certificate, needs_openssl
from jobs import Jobs

pytestmark = [
    needs_openssl,
    pytest.mark.skipif(
        "mtls_cert_file" not in inspect.signature(jax.distributed.initialize).parameters,
        reason="needs jax 0.12",
    ),
]

JOIN = """
import os, jax
jax.distributed.initialize({})
print("joined", jax.process_count())
"""


def python(code: str) -> tuple[object, ...]:
    return ("-n", 2, "-d", 1, sys.executable, "-c", code)


@pytest.mark.parametrize("way", ["arguments", "variables"])
def test_a_local_job_with_its_own_certificates(jobs: Jobs, tmp_path: Path, way: str) -> None:
    files = make_certificate(tmp_path, "IP:127.0.0.1")
    env = {f"JAX_{name.upper()}": path for name, path in files.items()}
    given = "" if way == "variables" else f"**{files}"
    words = python(JOIN.format(given))
    ended = jobs.run(*words, env=env if way == "variables" else {})
    assert ended.stdout.count("joined 2\n") == 2, ended.stderr
    assert ended.stderr == ""


def test_a_name_that_is_missing(jobs: Jobs, tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "DNS:elsewhere")
    ended = jobs.run(*python(JOIN.format(f"**{files}")))
    assert ended.status == 1
    assert ended.report.startswith("rank 0 failed: RuntimeError: mtls_cert_file=")
    assert "names elsewhere, not the coordinator's address: add IP:127.0.0.1 to" in ended.report


def test_ranks_that_do_not_agree(jobs: Jobs, tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "IP:127.0.0.1")
    code = JOIN.format(f"**({files} if os.environ['JAX_PROCESS_ID'] == '0' else dict())")
    ended = jobs.run("--start-timeout", 3, *python(code))
    assert "rank 1 has no mutual TLS, rank 0 has mutual TLS=on: all processes" in ended.report


def test_a_check_without_certificates(jobs: Jobs) -> None:
    ended = jobs.run(*python(JOIN.format("verify_secure_credentials=True")))
    assert ended.status == 134
    assert "hint: JAX_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS, or verify_secure_cre" in ended.report
