"""Reasons for and against mutual TLS: what this machine has, and the jax of the hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.machine.interpreter import find_executable, is_importable
from mcjax_launch.options import features as declared
from mcjax_launch.options.features import Where

_OLDEST = (0, 12)
_NEEDS = f"mutual TLS needs jax {'.'.join(map(str, _OLDEST))}"


def choose(job: Job, where: Where) -> Job:
    """Return the job, with --mtls off if TLS is not possible or not needed.

    Args:
        job: job with --mtls auto or on.
        where: where it is to run.

    Raises:
        LaunchError: --mtls on is given, and TLS is not possible.

    """
    is_required = declared.get(job, "mtls") == "on"
    if is_required and job.num_hosts > 1:
        raise LaunchError("--mtls on needs one launcher for all hosts: leave out --num-hosts")
    if not is_required and len(where.hosts) == 1:
        return job.copy_with(mtls="off")
    why = explain_no_tls(job, where.environ)
    if why and where.say is not None:
        where.say(f"--mtls auto: {why}")
    return job.copy_with(mtls="off") if why else job.copy_with(asks_jax=True)


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
        if declared.get(job, "mtls") == "on":
            raise LaunchError(f"--mtls on: {why}: install one of them")
        return why
    if job.expects_hooks:
        return ""
    if declared.get(job, "mtls") == "on" and os.path.basename(job.program[0]).startswith("python"):
        raise LaunchError("--mtls on: python -I, -E and -S keep out the hook, which sets up TLS")
    return "" if declared.get(job, "mtls") == "on" else "the ranks' Python is not known"


def explain_missing_tls(versions: Mapping[str, str]) -> str:
    """Return the reason why a job runs without TLS; "" if TLS is possible.

    Args:
        versions: version of jax on each host, by the host's name; "" if unknown.

    """
    if why := _explain_old_jax(versions):
        return why
    unknown = next((host for host, version in versions.items() if not version), None)
    if unknown is not None:
        return f"the version of jax on {unknown} is not known"
    return ""


def check_versions(versions: Mapping[str, str]) -> None:
    """Refuse --mtls on if a host's jax is too old; an unknown version is checked by the hook.

    Args:
        versions: versions of jax, as in `explain_missing_tls`.

    Raises:
        LaunchError: a host's jax is too old.

    """
    if why := _explain_old_jax(versions):
        raise LaunchError(f"--mtls on: {why}: install that on every host, or leave out --mtls on")


def _explain_old_jax(versions: Mapping[str, str]) -> str:
    for host, version in versions.items():
        numbers = version.split(".")[:2]
        if all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) < _OLDEST:
            return f"{host} has jax {version}, and {_NEEDS}"
    return ""
