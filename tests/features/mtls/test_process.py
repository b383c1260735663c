"""Who gets a certificate: real launchers, several hosts, and a stand-in for jax."""

import sys
from pathlib import Path

import pytest
from certificates import make_certificate, needs_openssl
from jobs import Ended, Jobs
from remote import FAKE_SSH
from stand_in_jax import BARE, BIND, make_stand_in

pytestmark = needs_openssl
NAMES = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")
TLS = BIND + "".join(f", {name}=None" for name in NAMES)
SHOW = f"print('tls', *({', '.join(NAMES)}), flush=True)"
NO_TLS = "tls None None None None\n"
OVER_SSH = ("--hosts", "a,b", "--via", FAKE_SSH, "--python", sys.executable)
PROGRAM = """
import os, sys, jax
rank = os.environ["JAX_PROCESS_ID"]
{CALL}
"""


def program(folder: Path, version: str, call: str = BARE) -> Path:
    """A program, and the stand-in of this version that it imports."""
    make_stand_in(folder, TLS, SHOW)
    (folder / "jax" / "version.py").write_text(f'_version = "{version}"\n')
    path = folder / "program.py"
    path.write_text(PROGRAM.replace("{CALL}", call))
    return path


def run(jobs: Jobs, path: Path, *options: object, on: tuple[object, ...] = OVER_SSH) -> Ended:
    words = [*on, *options, path]
    return jobs.run(*words, env={"PYTHONPATH": str(path.parent), "MCJAX_PRELOAD": "none"})


LOOK = f"""
import stat
{BARE}
folder = os.environ["MCJAX_HOOK_FOR_MTLS"].partition(":")[2]
key = open(os.path.join(folder, "key.pem")).read()
modes = [os.stat(place).st_mode for place in (folder, *os.scandir(folder))]
print(sorted(os.listdir(folder)), *(oct(stat.S_IMODE(mode)) for mode in modes))
everything = " ".join([*os.environ.values(), *sys.argv])
print("PRIVATE KEY" in key, key[40:80] in everything)
"""


@pytest.mark.parametrize("options", [[], ["--preload", "jax"]])
def test_mtls_connects_several_hosts(jobs: Jobs, tmp_path: Path, options: list[str]) -> None:
    path = program(tmp_path, "0.12.0", LOOK)
    ended = run(jobs, path, "-n", 3, *options, on=("--hosts", "a:2,b", *OVER_SSH[2:]))
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("/mtls/key.pem") == 3
    assert ended.stdout.count("['certificate.pem', 'key.pem'] 0o700 0o600 0o600\n") == 3
    assert ended.stdout.count("True False\n") == 3
    prefixes = {line.split()[-1] for line in ended.stdout.splitlines() if " tls " in line}
    assert len(prefixes) == 1
    assert prefixes.pop().startswith("spiffe://mcjax/")


def test_mtls_on_one_machine_uses_a_private_socket_unless_asked_for(
    jobs: Jobs, tmp_path: Path
) -> None:
    """Its socket is private; where TLS is asked for all the same, there is a port."""
    path = program(tmp_path, "0.12.0")
    shown = run(jobs, path, on=("-n", 2)).stdout
    assert (shown.count(NO_TLS), shown.count("at unix:")) == (2, 2)
    shown = run(jobs, path, "--mtls", "on", on=("-n", 2)).stdout
    assert (shown.count("/mtls/key.pem"), shown.count("at 127.0.0.1:")) == (2, 2)


def test_mtls_is_left_out_for_an_unsupported_jax(jobs: Jobs, tmp_path: Path) -> None:
    why = "a has jax 0.10.2, and mutual TLS needs jax 0.12"
    path = program(tmp_path, "0.10.2")
    ended = run(jobs, path, "-v")
    assert (ended.status, ended.stdout.count(NO_TLS)) == (0, 2), ended.stderr
    assert f"--mtls auto: {why}" in ended.report
    ended = run(jobs, path, "--mtls", "on")
    assert ended.status != 0
    assert ended.report.startswith(f"--mtls on: {why}")


def test_no_key_is_traced(jobs: Jobs, tmp_path: Path) -> None:
    words = [*OVER_SSH, program(tmp_path, "0.12.0")]
    env = {"PYTHONPATH": str(tmp_path), "MCJAX_PRELOAD": "none", "MCJAX_DEBUG": "frames"}
    ended = jobs.run(*words, env=env)
    assert "frame to a: Certificate(required=False)" in ended.stderr
    assert "PRIVATE KEY" not in ended.stderr


def test_ranks_that_disagree_on_mtls_are_named(jobs: Jobs, tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "IP:127.0.0.1")
    call = f"jax.distributed.initialize(**({files} if rank == '0' else {{}}))"
    ended = run(jobs, program(tmp_path, "0.12.0", call), on=("-n", 2))
    assert "rank 1 has no mutual TLS, rank 0 has mutual TLS=on: all processes" in ended.report


def test_mtls_can_be_turned_off(jobs: Jobs, tmp_path: Path) -> None:
    call = "print('tls', 'MCJAX_HOOK_FOR_MTLS' in os.environ)"
    ended = run(jobs, program(tmp_path, "0.12.0", call), "--mtls", "off")
    assert ended.stdout.count("tls False\n") == 2, ended.stderr


def test_each_attempt_has_its_own_certificates(jobs: Jobs, tmp_path: Path) -> None:
    call = f"{BARE}\nsys.exit(os.environ['MCJAX_RESTART'] == '0')"
    ended = run(jobs, program(tmp_path, "0.12.0", call), "--max-restarts", 1)
    assert ended.status == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines() if " tls " in line]
    assert len({line[-1] for line in lines}) == 2  # prefixes
