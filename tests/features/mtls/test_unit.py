"""The certificate of a job, and whether a job has one."""

import subprocess
from pathlib import Path

import pytest
from certificates import needs_openssl

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.mtls import certificate
from mcjax_launch.features.mtls.choice import (
    check_versions,
    explain_missing_tls,
    explain_no_tls,
)
from mcjax_launch.features.mtls.hook import PART
from mcjax_launch.features.mtls.messages import Certificate
from mcjax_launch.hook.agent_link import AgentLink
from mcjax_launch.job.job import Job
from mcjax_launch.wire.hook_environ import list_requested_features

# --- the certificate ---


def openssl(*words: object) -> str:
    command = ["openssl", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check(folder: Path, text: str, key: str) -> None:
    """Have openssl read a certificate and its key."""
    path, key_path = folder / "certificate.pem", folder / "key.pem"
    path.write_text(text)
    key_path.write_text(key)
    openssl("verify", "-x509_strict", "-CAfile", path, path)
    shown = openssl("x509", "-in", path, "-noout", "-text")
    assert "URI:spiffe://mcjax/0badcafe/rank\n" in shown
    assert "Not Before: Jan  1 00:00:00 2020 GMT" in shown
    assert "Not After : Dec 31 23:59:59 2099 GMT" in shown
    own = openssl("x509", "-in", path, "-noout", "-pubkey")
    assert openssl("pkey", "-in", key_path, "-pubout") == own


@needs_openssl
def test_openssl_reads_what_it_has_signed(tmp_path: Path) -> None:
    text, key = certificate.make("0badcafe")
    check(tmp_path, text, key)
    assert certificate.make("0badcafe") != (text, key)


@needs_openssl
def test_making_certificates_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    certificate.make("0badcafe")
    assert list(tmp_path.iterdir()) == []


@needs_openssl
def test_certificates_are_made_with_the_package_cryptography(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="needs the package cryptography")
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        text, key = certificate.make("0badcafe")
    check(tmp_path, text, key)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo one; echo no >&2; exit 1", "no"),
        ("exit 3", "exit status 3"),
        ("echo x", "its answer"),
    ],
)
def test_failing_openssl_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    (tmp_path / "openssl").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "openssl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(certificate, "_make_by_cryptography", _missing)
    with pytest.raises(
        certificate.NoCertificate, match=f"openssl cannot make a certificate: {why}"
    ):
        certificate.make("0badcafe")


def _missing(uri: str) -> None:
    raise ImportError


def test_the_key_is_not_shown() -> None:
    order = Certificate("text", "secret", required=True)
    assert "secret" not in f"{order!r} {order}"
    assert Certificate.of('["mtls.Certificate",["text","secret",true]]') == order


# --- whether a job has one ---

VERSIONS = {
    "": {"a": "0.12.0", "b": "0.12.0"},
    "b has jax 0.10.2, and mutual TLS needs jax 0.12": {"a": "0.12.0", "b": "0.10.2"},
    "a has jax 0.6.0, and mutual TLS needs jax 0.12": {"a": "0.6.0", "b": ""},
    "the version of jax on b is not known": {"a": "0.12.0", "b": ""},
}


@pytest.mark.parametrize("why", VERSIONS)
def test_mtls_depends_on_the_jax_version(why: str) -> None:
    assert explain_missing_tls(VERSIONS[why]) == why
    assert explain_missing_tls({"a": "1.0.0"}) == ""
    if "needs" not in why:  # the hook will see
        check_versions(VERSIONS[why])
        return
    with pytest.raises(LaunchError, match=f"--mtls on: {why}: install that"):
        check_versions(VERSIONS[why])


JOB = Job(program=("train.py",), python="/py", chdir="/w")
ENVIRON = {"PATH": "/nowhere"}
NEITHER = "to make a certificate, openssl or the Python package cryptography is needed here"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"program": ("python3", "-u", "train.py")}, ""),
        ({"program": ("bash", "run.sh")}, "the ranks' Python is not known"),
        ({"program": ("bash", "run.sh"), "mtls": "on"}, ""),  # the hook will see
        ({"hook": False}, "with --no-hook ranks get no certificate"),
    ],
)
@needs_openssl
def test_mtls_obstacles_are_found_before_hosts_are_reached(
    changes: dict[str, object], why: str
) -> None:
    from os import environ

    assert explain_no_tls(JOB.copy_with(**changes), environ) == why


def test_missing_tools_for_certificates_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcjax_launch.features.mtls.choice.is_importable", lambda name: False)
    assert explain_no_tls(JOB, ENVIRON) == NEITHER
    with pytest.raises(LaunchError, match=f"--mtls on: {NEITHER}: install one of them"):
        explain_no_tls(JOB.copy_with(mtls="on"), ENVIRON)
    monkeypatch.setattr("mcjax_launch.features.mtls.choice.is_importable", lambda name: True)
    assert explain_no_tls(JOB, ENVIRON) == ""


# --- in a rank ---

ASKED = "MCJAX_HOOK_FOR_MTLS"
RANK = {ASKED: "auto:/f/mtls", "MCJAX_JOB_ID": "0badcafe", "JAX_NUM_PROCESSES": "2"}
KNOWN = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")


def arguments(
    given: dict[str, object], known: tuple[str, ...], environ: dict[str, str]
) -> dict[str, str]:
    return PART(AgentLink(), environ).make_arguments(given, known)


def test_initialize_gets_mtls_arguments() -> None:
    assert list_requested_features(RANK) == ["mtls"]
    assert arguments({"num_processes": 2}, KNOWN, RANK) == {
        "mtls_cert_file": "/f/mtls/certificate.pem",
        "mtls_key_file": "/f/mtls/key.pem",
        "mtls_ca_file": "/f/mtls/certificate.pem",
        "mtls_peer_uri_prefix": "spiffe://mcjax/0badcafe/",
    }


@pytest.mark.parametrize(
    ("given", "known", "environ"),
    [
        ({}, (), RANK),  # a jax that takes no such arguments
        ({"mtls_ca_file": "mine.pem"}, KNOWN, RANK),
        ({"num_processes": 3}, KNOWN, RANK),  # one of whom is not of this job
    ],
)
def test_calls_with_own_mtls_settings_are_unchanged(
    given: dict[str, object], known: tuple[str, ...], environ: dict[str, str]
) -> None:
    assert arguments(given, known, environ) == {}


def test_required_mtls_fails_if_jax_lacks_it() -> None:
    with pytest.raises(RuntimeError, match="--mtls on: this jax has no mutual TLS"):
        arguments({}, (), {**RANK, ASKED: "on:/f/mtls"})
