"""A check as data for a program: the file of --report; docs/check.md says what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mcjax_launch import __version__
from mcjax_launch.check.found import Found, GlobalSum, HostFound, Network
from mcjax_launch.check.judgement import passed
from mcjax_launch.check.step import Step
from mcjax_launch.protocol.messages import Surveyed
from mcjax_launch.protocol.value import Value
from mcjax_launch.report.record import without_values

FORMAT = "mcjax-launch check"
#: Goes up when a field changes its meaning or goes away.
VERSION = 1
_OF_SURVEY = (
    *("python", "cwd", "refused", "addresses", "cores", "load", "memory_kib", "free_kib"),
    *("gpus", "gpu_memory", "shm_kib", "shm_free_kib", "tpu"),
)

Json = dict[str, Any]


def as_json(
    found: Found, steps: Sequence[Step], arguments: Sequence[str], *, began: float, host: str
) -> Json:
    """The whole file.

    Args:
        found: by the check.
        steps: how that has been judged.
        arguments: of the command line.
        began: when, in seconds since 1970.
        host: the launcher's.

    """
    parts = {name: one for name, one in found.seconds.items() if name != "all"}
    return {
        "format": FORMAT,
        "version": VERSION,
        "launcher_version": __version__,
        "launcher_host": host,
        "command": ["mcjax-launch", *without_values(arguments)],
        "began": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(found.seconds["all"], 3),
        "passed": passed(steps),
        "steps": [_fields(step) for step in steps],
        "parts_s": parts,
        "hosts": [_host(host) for host in found.hosts],
        "network": _network(found.network),
        "sum": _sum(found.total),
    }


def _fields(value: Value) -> Json:
    """The fields of a value that has no values in it."""
    return {
        name: list(one) if isinstance(one := getattr(value, name), tuple) else one
        for name in value._fields
    }


def _host(host: HostFound) -> Json:
    return {
        "name": host.name,
        "ranks": host.ranks,
        "reached": host.surveyed is not None and not host.unreachable,
        "unreachable": host.unreachable,
        **_surveyed(host.surveyed),
        "gpu_share": host.share.words if host.surveyed is not None else None,
        "interface": _fields(host.interface) if host.interface is not None else None,
        "clock_ahead_s": host.clock.ahead_s if host.clock is not None else None,
        "clock_error_s": host.clock.error_s if host.clock is not None else None,
        "devices": [_fields(one) for one in host.devices],
        "devices_error": host.devices_error,
    }


def _surveyed(surveyed: Surveyed | None) -> Json:
    if surveyed is None:
        return dict.fromkeys(_OF_SURVEY)
    return {
        "python": _fields(surveyed.python),
        "cwd": surveyed.facts.cwd,
        "refused": list(surveyed.refused),
        "addresses": list(surveyed.facts.addresses),
        "cores": surveyed.cores,
        "load": surveyed.load,
        "memory_kib": surveyed.memory_kib,
        "free_kib": surveyed.free_kib,
        "gpus": [_fields(one) for one in surveyed.gpus],
        "gpu_memory": [_fields(one) for one in surveyed.gpu_memory],
        "shm_kib": surveyed.shm_kib,
        "shm_free_kib": surveyed.shm_free_kib,
        "tpu": None if surveyed.facts.tpu is None else _fields(surveyed.facts.tpu),
    }


def _network(network: Network) -> Json:
    return {**_fields(network), "gaps": [_fields(gap) for gap in network.gaps]}


def _sum(total: GlobalSum) -> Json:
    return {
        **_fields(total),
        "expected": total.expected,
        "timings": [_fields(one) for one in total.timings],
    }
