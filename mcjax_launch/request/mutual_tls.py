"""Check that this machine and the options allow TLS between ranks and JAX's coordinator."""

import os
from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.machine.interpreter import find_executable
from mcjax_launch.request.ranks_python import is_importable


def explain_no_tls(job: Job, environ: Mapping[str, str]) -> str:
    """Return the reason why a job cannot have TLS; "" if none is known before the start.

    Args:
        job: job on several hosts, or with --mtls on.
        environ: variables of this process.

    Raises:
        LaunchError: --mtls on is given, and TLS is not possible.

    """
    if not job.hook:
        return "with --no-hook ranks get no certificate"
    if not find_executable("openssl", "", environ.get("PATH", os.defpath)) and not is_importable(
        "cryptography"
    ):
        why = "to make a certificate, openssl or the Python package cryptography is needed here"
        if job.mtls == "on":
            raise LaunchError(f"--mtls on: {why}: install one of them")
        return why
    if job.expects_hooks:
        return ""
    if job.mtls == "on" and os.path.basename(job.program[0]).startswith("python"):
        raise LaunchError("--mtls on: python -I, -E and -S keep out the hook, which sets up TLS")
    return "" if job.mtls == "on" else "the ranks' Python is not known"
