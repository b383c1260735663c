"""Whether a program's own certificate names the coordinator's address."""

from pathlib import Path
from typing import Any

import pytest
from certificates import make_certificate, needs_openssl

from mcjax_launch.hook.mutual_tls import check_name, find_tls_arguments

pytestmark = needs_openssl
NAMES = "DNS:gpu01.example.org,DNS:*.lab.org,IP:10.0.0.1,IP:fd00::1"
MATCHING = ["gpu01.example.org", "GPU01.example.org", "x.lab.org", "10.0.0.1", "[fd00:0::1]"]
MISSING = {
    "gpu02.example.org": "add DNS:gpu02.example.org to",
    "x.y.lab.org": "add DNS:x.y.lab.org to",
    "10.0.0.2": "add IP:10.0.0.2 to",
    "[fd00::2]": "add IP:fd00::2 to",
}


def check(folder: Path, host: str, names: str = NAMES, **more: object) -> None:
    files = make_certificate(folder, names, "/CN=head")
    check_name({"coordinator_address": f"{host}:1234", "process_id": 0, **files, **more})


@pytest.mark.parametrize("host", MATCHING)
def test_matching_name_is_accepted(tmp_path: Path, host: str) -> None:
    check(tmp_path, host)


@pytest.mark.parametrize("host", MISSING)
def test_missing_name_is_mentioned(tmp_path: Path, host: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        check(tmp_path, host)
    assert MISSING[host] in str(raised.value)
    assert "names gpu01.example.org, *.lab.org, 10.0.0.1, FD00:0:0:0:0:0:0:1, not" in str(
        raised.value
    )


def test_the_subject_counts_where_there_is_no_other_name(tmp_path: Path) -> None:
    check(tmp_path, "head", names="")
    with pytest.raises(RuntimeError, match="names head, not"):
        check(tmp_path, "10.0.0.1", names="")


@pytest.mark.parametrize(
    "more",
    [
        {"process_id": 1},  # whose certificate nobody compares with an address
        {"mtls_peer_uri_prefix": "spiffe://me/"},
        {"mtls_cert_file": None},
        {"mtls_cert_file": "/nowhere"},  # JAX says that
    ],
)
def test_certificates_of_other_calls_are_not_checked(tmp_path: Path, more: dict[str, Any]) -> None:
    check(tmp_path, "10.0.0.2", **more)


def test_own_mtls_arguments_are_found() -> None:
    given = {"mtls_cert_file": "c", "mtls_key_file": None, "process_id": 0}
    assert find_tls_arguments(given) == {"mtls_cert_file": "c"}
