"""Who gets a certificate: real launchers, several hosts, and a stand-in for jax."""

import sys
from pathlib import Path

import pytest
from certificates import needs_openssl
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
    make_stand_in(folder, TLS if version else BIND, SHOW if version else "pass")
    if version:
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


@pytest.mark.parametrize("options", [[], ["--mtls", "on"], ["--preload", "jax"], [sys.executable]])
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


PLAIN = {
    "0.6.0": "--mtls auto: a has jax 0.6.0, and mutual TLS needs jax 0.12",
    "0.10.2": "--mtls auto: a has jax 0.10.2, and mutual TLS needs jax 0.12",
    "": "--mtls auto: the version of jax on a is not known",
}


@pytest.mark.parametrize("version", PLAIN)
def test_mtls_is_left_out_for_an_unsupported_jax(jobs: Jobs, tmp_path: Path, version: str) -> None:
    path = program(tmp_path, version)
    ended = run(jobs, path, "-v")
    assert ended.status == 0, ended.stderr
    assert PLAIN[version] in ended.report
    assert ended.stdout.count(NO_TLS) == (2 if version else 0)
    assert "mtls" not in run(jobs, path).stderr
    ended = run(jobs, path, "--mtls", "on")
    assert ended.status != 0
    if version:
        assert ended.report.startswith(f"--mtls on: a has jax {version}, and mutual TLS needs ")
    else:
        assert "RuntimeError: --mtls on: this jax has no mutual TLS; upgrade" in ended.report


@pytest.mark.parametrize("options", [["--mtls", "off"], ["--no-hook"]])
def test_mtls_can_be_turned_off(jobs: Jobs, tmp_path: Path, options: list[str]) -> None:
    call = "print('tls', 'MCJAX_HOOK_FOR_MTLS' in os.environ)"
    ended = run(jobs, program(tmp_path, "0.12.0", call), *options)
    assert ended.stdout.count("tls False\n") == 2, ended.stderr


def test_own_certificate_of_the_program_is_kept(jobs: Jobs, tmp_path: Path) -> None:
    call = "jax.distributed.initialize(mtls_peer_uri_prefix='spiffe://mine/')"
    shown = run(jobs, program(tmp_path, "0.12.0", call)).stdout
    assert shown.count("tls None None None spiffe://mine/\n") == 2


def test_each_attempt_has_its_own_certificates(jobs: Jobs, tmp_path: Path) -> None:
    call = f"{BARE}\nsys.exit(os.environ['MCJAX_RESTART'] == '0')"
    ended = run(jobs, program(tmp_path, "0.12.0", call), "--max-restarts", 1)
    assert ended.status == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines() if " tls " in line]
    assert len({line[-1] for line in lines}) == 2  # prefixes


def test_no_key_is_traced(jobs: Jobs, tmp_path: Path) -> None:
    words = [*OVER_SSH, program(tmp_path, "0.12.0")]
    env = {"PYTHONPATH": str(tmp_path), "MCJAX_PRELOAD": "none", "MCJAX_DEBUG": "frames"}
    ended = jobs.run(*words, env=env)
    assert "frame to a: Certificate(required=False)" in ended.stderr
    assert "PRIVATE KEY" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--no-hook"], "--mtls on cannot be combined with --no-hook: "),
        (
            ["--num-hosts", 2, "--host-rank", 0, "--coordinator", "127.0.0.1:1"],
            "--mtls on needs one launcher for all hosts: leave out --num-hosts",
        ),
    ],
)
def test_mtls_on_is_refused_where_it_is_impossible(
    jobs: Jobs, options: list[object], why: str
) -> None:
    ended = jobs.run("--mtls", "on", *options, "true")
    assert (ended.status, ended.report[: len(why)]) == (2, why)
