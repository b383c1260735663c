"""Checks that all hosts' jax supports mutual TLS for the coordination service; pure."""

from collections.abc import Mapping

from mcjax_launch.errors import LaunchError

_OLDEST = (0, 12)
_NEEDS = f"mutual TLS needs jax {'.'.join(map(str, _OLDEST))}"


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
