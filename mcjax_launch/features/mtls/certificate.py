"""A certificate for one job, which is its own CA and names a URI alone; its key is in no file.

openssl makes the key and signs, or else the package cryptography. What is signed is written here:
openssl's command has an option for the beginning of the validity only from version 3.4 on, and the
clock of a host may be behind.
"""

import os
import subprocess
from base64 import b64decode, b64encode

# Of ASN.1.
_INTEGER, _BITS, _BYTES, _OID, _TEXT, _SET, _SEQUENCE = 0x02, 0x03, 0x04, 0x06, 0x0C, 0x31, 0x30
_URI, _VERSION, _EXTENSIONS = 0x86, 0xA0, 0xA3
_TIME, _TIME_FROM_2050 = 0x17, 0x18
_ECDSA_SHA256 = bytes.fromhex("2a8648ce3d040302")
_EC_KEY = bytes.fromhex("2a8648ce3d0201")
_P256 = bytes.fromhex("2a8648ce3d030107")
_COMMON_NAME = bytes.fromhex("550403")
_ALTERNATIVE_NAME = bytes.fromhex("551d11")
# A job ends before that, and no clock is so wrong.
_FROM, _UNTIL = b"200101000000Z", b"20991231235959Z"
_POINT = 65  # bytes of a public key: 4, x, y
_MOST_S = 3.0  # meanwhile agents hear nothing of the launcher


class NoCertificate(Exception):
    """It cannot be made; the text says why."""


def make(job_id: str) -> tuple[str, str]:
    """Make a certificate for the URI `spiffe://mcjax/JOB/rank`; return it and its key, as PEM.

    Raises:
        NoCertificate: neither openssl nor the package cryptography has made one.

    """
    try:
        return _made(job_id, _OpenSsl())
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = f"openssl cannot make a certificate: {error}"
    try:
        return _made(job_id, _Cryptography())
    except ImportError:
        raise NoCertificate(why) from None


class _OpenSsl:
    """A key of openssl's command, which it gets through a pipe."""

    def __init__(self) -> None:
        self.key = _run("ecparam", "-name", "prime256v1", "-genkey", "-noout").decode("ascii")
        self.point = b64decode("".join(self.key.splitlines()[1:-1]))[-_POINT:]
        if len(self.point) != _POINT or self.point[0] != 4:
            raise ValueError("its key has another form than expected")

    def sign(self, data: bytes) -> bytes:
        key, end = os.pipe()
        try:
            os.write(end, self.key.encode())  # less than a pipe holds
            os.close(end)
            return _run("dgst", "-sha256", "-sign", f"/dev/fd/{key}", fd=key, data=data)
        finally:
            os.close(key)


def _run(*words: str, fd: int = -1, data: bytes = b"") -> bytes:
    """Return what openssl prints."""
    fds = (fd,) if fd >= 0 else ()
    command = ["openssl", *words]
    done = subprocess.run(command, input=data, pass_fds=fds, capture_output=True, timeout=_MOST_S)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(said[-1] if said else f"exit status {done.returncode}")
    return done.stdout


class _Cryptography:
    """A key of the package cryptography."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self.key = self._key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        ).decode("ascii")
        self.point = self._key.public_key().public_bytes(
            form.Encoding.X962, form.PublicFormat.UncompressedPoint
        )

    def sign(self, data: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        signature: bytes = self._key.sign(data, ec.ECDSA(hashes.SHA256()))
        return signature


def _made(job_id: str, signer: _OpenSsl | _Cryptography) -> tuple[str, str]:
    wanted = _unsigned(f"spiffe://mcjax/{job_id}/rank", signer.point)
    signature = _der(_BITS, b"\0", signer.sign(wanted))
    whole = b64encode(_der(_SEQUENCE, wanted, _algorithm(), signature)).decode("ascii")
    lines = [whole[at : at + 64] for at in range(0, len(whole), 64)]
    marks = [f"-----{which} CERTIFICATE-----" for which in ("BEGIN", "END")]
    return "\n".join([marks[0], *lines, marks[1], ""]), signer.key


def _unsigned(uri: str, point: bytes) -> bytes:
    """Return what is to be signed: the TBSCertificate of RFC 5280."""
    name = _der(_SEQUENCE, _der(_OID, _COMMON_NAME), _der(_TEXT, b"mcjax"))
    name = _der(_SEQUENCE, _der(_SET, name))
    curve = _der(_SEQUENCE, _der(_OID, _EC_KEY), _der(_OID, _P256))
    uris = _der(_BYTES, _der(_SEQUENCE, _der(_URI, uri.encode("ascii"))))
    return _der(
        _SEQUENCE,
        _der(_VERSION, _der(_INTEGER, b"\2")),  # which is version 3
        _der(_INTEGER, b"\1" + os.urandom(15)),  # its serial number
        _algorithm(),
        name,
        _der(_SEQUENCE, _der(_TIME, _FROM), _der(_TIME_FROM_2050, _UNTIL)),
        name,
        _der(_SEQUENCE, curve, _der(_BITS, b"\0", point)),
        _der(_EXTENSIONS, _der(_SEQUENCE, _der(_SEQUENCE, _der(_OID, _ALTERNATIVE_NAME), uris))),
    )


def _algorithm() -> bytes:
    return _der(_SEQUENCE, _der(_OID, _ECDSA_SHA256))


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a value of ASN.1, as DER has it."""
    body = b"".join(parts)
    length = len(body)
    if length < 128:
        return bytes([tag, length]) + body
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 128 | len(size)]) + size + body
