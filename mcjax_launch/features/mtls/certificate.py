"""Self-signed certificate for one job, valid for a URI; its key is in no file.

openssl makes the certificate, or else the package cryptography. It is valid from 2020, because a
host's clock may be slow; an openssl before 3.4 can do that only with its command `ca`.
"""

import datetime
import os
import re
import shutil
import subprocess

from mcjax_launch.machine import temporary_folder

_FROM = datetime.datetime(2020, 1, 1)
_UNTIL = datetime.datetime(2099, 12, 31, 23, 59, 59)
_MOST_S = 5.0  # meanwhile the launcher sends nothing to its agents
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----\n[^-]+-----END \1-----\n")
_OWN = ("-config", "config")
_CONFIG = """\
[ca]
default_ca = job
[job]
database = index
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = URI:{uri}
[req]
distinguished_name = subject
prompt = no
[subject]
CN = mcjax
"""


class NoCertificate(Exception):
    """Error: no certificate can be made; the text says why."""


def make(job_id: str) -> tuple[str, str]:
    """Make a certificate for the URI `spiffe://mcjax/JOB/rank`; return it and its key, as PEM.

    Raises:
        NoCertificate: neither openssl nor the package cryptography has made one.

    """
    uri = f"spiffe://mcjax/{job_id}/rank"
    try:
        return _make_by_openssl(uri)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = f"openssl cannot make a certificate: {error}"
    try:
        return _make_by_cryptography(uri)
    except Exception:  # the package is missing or broken
        raise NoCertificate(why) from None


def _make_by_openssl(uri: str) -> tuple[str, str]:
    folder = temporary_folder.make("mcjax-")
    try:
        return _make_in(folder, uri)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_in(folder: str, uri: str) -> tuple[str, str]:
    serial, config = os.urandom(8).hex(), _CONFIG.format(uri=uri)
    for name, text in {"index": "", "serial": serial, "config": config}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    made = _run(folder, "req", *_OWN, "-new", *curve, "-keyout", "/dev/stdout")
    found = [match[0] for match in _PEM.finditer(made)]
    if len(found) != 2:
        raise ValueError("its answer has an unexpected form")
    key, request = found
    reading, writing = os.pipe()
    try:
        os.write(writing, key.encode())  # less than a pipe holds
        os.close(writing)
        dates = ("-startdate", f"{_FROM:%Y%m%d%H%M%SZ}", "-enddate", f"{_UNTIL:%Y%m%d%H%M%SZ}")
        sign = ("-selfsign", "-keyfile", f"/dev/fd/{reading}", "-in", "/dev/stdin")
        words = ("ca", *_OWN, "-batch", "-notext", *dates, *sign)
        return _run(folder, *words, fd=reading, text=request), key
    finally:
        os.close(reading)


def _run(folder: str, *words: str, fd: int = -1, text: str = "") -> str:
    """Return what openssl prints; it runs in `folder`, as its configuration accepts few paths."""
    fds = (fd,) if fd >= 0 else ()
    done = subprocess.run(
        ["openssl", *words],
        input=text,
        pass_fds=fds,
        capture_output=True,
        text=True,
        timeout=_MOST_S,
        cwd=folder,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise ValueError(said[-1] if said else f"exit status {done.returncode}")
    return done.stdout


def _make_by_cryptography(uri: str) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcjax")])
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(_FROM).not_valid_after(_UNTIL)
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form, cipher = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return (
        certificate.public_bytes(pem).decode("ascii"),
        key.private_bytes(pem, form, cipher).decode("ascii"),
    )
