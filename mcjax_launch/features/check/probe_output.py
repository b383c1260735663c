"""Parsing of the probe's output, from a host or from a rank."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mcjax_launch.features.check.messages import Probed
from mcjax_launch.features.check.probe import MARK
from mcjax_launch.kernel.wire.codec import Malformed, Nested, from_values

ProbeOutput = dict[str, Any]


class PythonFacts(Nested):
    """Python for ranks: its version, and the versions of jax and related packages by name.

    `path` is "" if there is no Python. `error`: what is wrong with it; "" if it has jax.
    """

    path: str
    version: str
    packages: dict[str, str]
    error: str


class DeviceCount(Nested):
    """Number of devices of one kind."""

    platform: str
    kind: str
    count: int


class DevicesCounted(Nested):
    """Devices that JAX finds on a host, or the reason why they are unknown."""

    devices: tuple[DeviceCount, ...]
    error: str


def parse_output(text: str) -> ProbeOutput:
    """Return the values that the probe reported, from all that it printed."""
    told: ProbeOutput = {}
    for line in re.findall(f"{MARK}(.*)", text):
        with contextlib.suppress(ValueError):  # other output in the middle of the line
            told.update(json.loads(line))
    return told


def parse_python(answer: Probed) -> PythonFacts:
    """Return the Python that the probe describes, with what is wrong with it."""
    told, error = parse_output(answer.printed), answer.error
    try:
        if not error:
            values = [answer.python, told.get("version"), told.get("packages"), ""]
            facts = from_values(PythonFacts, values)
            return facts if "jax" in facts.packages else facts.copy_with(error="has no jax")
    except Malformed as malformed:
        error = str(malformed)
    return PythonFacts(answer.python, "", {}, f"does not run: {error}" if answer.python else error)


def parse_devices(answer: Probed) -> DevicesCounted:
    """Return the devices that the probe counted."""
    if answer.error:
        return DevicesCounted((), answer.error)
    try:
        return from_values(DevicesCounted, [parse_output(answer.printed).get("devices"), ""])
    except Malformed as malformed:
        return DevicesCounted((), str(malformed))


def count_devices_by_host(ranks: Sequence[tuple[str, ProbeOutput]]) -> dict[str, DevicesCounted]:
    """Return the devices of each host by its name.

    Args:
        ranks: the host of each rank, and what its probe reported.

    """
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for host, told in ranks:
        for platform, kind, count in told.get("devices", ()):
            counts.setdefault(host, Counter())[platform, kind] += count
    return {
        host: DevicesCounted(tuple(DeviceCount(*kind, count) for kind, count in found.items()), "")
        for host, found in counts.items()
    }
