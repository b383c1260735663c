"""Part of --mtls in a rank: adds the job's certificate to a call of initialize()."""

from __future__ import annotations

import os

from ...hook.coordinator import TLS_ARGUMENTS, uses_tls
from ...hook.part import RankPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from typing import Any


class CertificateArguments(RankPart):
    """Part whose variable is `on:FOLDER` or `auto:FOLDER`, the folder with the certificate."""

    def make_arguments(self, given: Mapping[str, Any], known: Container[str]) -> dict[str, str]:
        """Return the arguments for the certificate; {} if it cannot be used.

        The program may use TLS already or expect other processes, or this jax may have no mutual
        TLS.

        Raises:
            RuntimeError: this jax has no mutual TLS, and --mtls on was given.

        """
        required, _, folder = self.asked.partition(":")
        if uses_tls(given) or (required != "on" and self._has_outsiders(given)):
            return {}
        if TLS_ARGUMENTS[0] not in known:
            if required == "on":
                raise RuntimeError("--mtls on: this jax has no mutual TLS; upgrade jax to 0.12")
            return {}
        certificate = os.path.join(folder, "certificate.pem")
        prefix = f"spiffe://mcjax/{self.environ['MCJAX_JOB_ID']}/"
        values = (certificate, os.path.join(folder, "key.pem"), certificate, prefix)
        return dict(zip(TLS_ARGUMENTS, values))

    def _has_outsiders(self, given: Mapping[str, Any]) -> bool:
        """Return whether a program expects more processes than this job has."""
        count = given.get("num_processes")
        return isinstance(count, int) and count > int(self.environ["JAX_NUM_PROCESSES"])


PART = CertificateArguments
