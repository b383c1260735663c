"""Make certificates with openssl."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def make_certificate(folder: Path, names: str) -> dict[str, str]:
    """Make a certificate that is its own CA; return the arguments of initialize() for it.

    Args:
        folder: for the files.
        names: of the certificate, as openssl writes them: `DNS:localhost,IP:127.0.0.1`.

    """
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", str(key)),
        *("-out", str(certificate)),
    ]
    subprocess.run(
        [*request, "-addext", f"subjectAltName={names}"], check=True, capture_output=True
    )
    files = {"cert": certificate, "key": key, "ca": certificate}
    return {f"mtls_{name}_file": str(path) for name, path in files.items()}
