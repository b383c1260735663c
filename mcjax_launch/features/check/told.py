"""What the probe has told of a host, or as a rank; pure."""

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

Told = dict[str, Any]


class PythonFacts(Nested):
    """A Python for ranks: its version, and those of jax and what belongs to it, by their names.

    `path` is "" if there is none. `error`: what is wrong with it; "" if it has jax.
    """

    path: str
    version: str
    packages: dict[str, str]
    error: str


class DeviceCount(Nested):
    """How many devices of one kind there are."""

    platform: str
    kind: str
    count: int


class DevicesCounted(Nested):
    """The devices that JAX has on a host; or why that is not known."""

    devices: tuple[DeviceCount, ...]
    error: str


def told_by(text: str) -> Told:
    """Return what the probe has told, of all that it printed."""
    told: Told = {}
    for line in re.findall(f"{MARK}(.*)", text):
        with contextlib.suppress(ValueError):  # somebody else has printed in the middle of it
            told.update(json.loads(line))
    return told


def python_of(answer: Probed) -> PythonFacts:
    """Return what the probe has told of a Python."""
    told, error = told_by(answer.printed), answer.error
    try:
        if not error:
            values = [answer.python, told.get("version"), told.get("packages"), ""]
            facts = from_values(PythonFacts, values)
            return facts if "jax" in facts.packages else facts.replaced(error="has no jax")
    except Malformed as malformed:
        error = str(malformed)
    return PythonFacts(answer.python, "", {}, f"does not run: {error}" if answer.python else error)


def devices_of(answer: Probed) -> DevicesCounted:
    """Return the devices that the probe has told of."""
    if answer.error:
        return DevicesCounted((), answer.error)
    try:
        return from_values(DevicesCounted, [told_by(answer.printed).get("devices"), ""])
    except Malformed as malformed:
        return DevicesCounted((), str(malformed))


def devices_of_ranks(ranks: Sequence[tuple[str, Told]]) -> dict[str, DevicesCounted]:
    """Return the devices of each host by its name.

    Args:
        ranks: the host of each, and what it has told.

    """
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for host, told in ranks:
        for platform, kind, count in told.get("devices", ()):
            counts.setdefault(host, Counter())[platform, kind] += count
    return {
        host: DevicesCounted(tuple(DeviceCount(*kind, count) for kind, count in found.items()), "")
        for host, found in counts.items()
    }
