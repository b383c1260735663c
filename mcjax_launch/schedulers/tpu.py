"""TPU slices of a cluster: which nodes they are, and how many chips each has; pure."""

import math
import re
from dataclasses import dataclass

from mcjax_launch.errors import LaunchError
from mcjax_launch.ranks import counted

_WRITTEN = r"([a-z0-9][a-z0-9-]{0,62}):([1-9][0-9]{0,3}(?:x[1-9][0-9]{0,3}){1,2})"
# What a host of any generation may have.
_ON_A_HOST = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Tpus:
    """Equal slices.

    Args:
        accelerator: their type, by the name that their nodes have, such as tpu-v6e-slice.
        topology: of each slice, such as 4x4.
        slices: how many.
        chips: on each host.

    """

    accelerator: str
    topology: str
    slices: int
    chips: int


def parse(text: str, hosts: int, slices: int) -> Tpus:
    """The slices that `--tpu TYPE:TOPOLOGY` means.

    Args:
        text: as the user wrote it.
        hosts: of all slices.
        slices: how many.

    Raises:
        LaunchError: it cannot be read, or does not fit the hosts.

    """
    written = re.fullmatch(_WRITTEN, text)
    if not written:
        raise LaunchError(f"--tpu {text}: write TYPE:TOPOLOGY, as in tpu-v6e-slice:4x4")
    if hosts % slices:
        raise LaunchError(
            f"--slices {slices}: {counted(hosts, 'host')} cannot be so many equal slices; "
            "--num-hosts counts those of all slices"
        )
    whole = math.prod(map(int, written[2].split("x")))
    chips, rest = divmod(whole, hosts // slices)
    if rest or chips not in _ON_A_HOST:
        raise LaunchError(
            f"--tpu {text}: {counted(whole, 'chip')} on {counted(hosts // slices, 'host')} of each "
            "slice, and a host has 1, 2, 4 or 8; set --num-hosts, of all slices"
        )
    return Tpus(accelerator=written[1], topology=written[2], slices=slices, chips=chips)
