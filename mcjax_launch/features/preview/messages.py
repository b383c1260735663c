"""Requests to ranks that run alone, and their reports of programs that span processes."""

from __future__ import annotations

from ...wire.codec import Nested
from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent

#: Ranks that run at the same time.
TOGETHER = 2


class Alone(ToAgent):
    """Order to start the ranks of this host a few at a time, because each runs alone."""


class Wanted(Nested):
    """Request of the launcher to a rank, in the feature's variable.

    Args:
        devices: number of devices of each rank.
        sizes: number of ranks on each host.
        steps: number of calls of one program after which the run ends; 0 for no limit.
        topology: TPU topology to compile for, such as `v5e:8x8`; "" for CPU devices.

    """

    devices: int
    sizes: tuple[int, ...]
    steps: int = 0
    topology: str = ""


class Collective(Nested):
    """Collectives of one kind along the same axes of a program's mesh.

    Args:
        kind: XLA's name, such as `all-reduce`.
        axes: names of the axes, in the mesh's order; () if the program has no mesh.
        count: number of them in a call of the program.
        bytes: bytes of their results on one device, in a call.
        crossing: bytes of these that come from other hosts.

    """

    kind: str
    axes: tuple[str, ...]
    count: int
    bytes: int
    crossing: int


class WholeArgument(Nested):
    """WholeArgument of a program, and its bytes on one device."""

    name: str
    bytes: int


class PreviewedProgram(HookMessage):
    """PreviewedProgram that spans processes and has been compiled. Sizes are bytes on one device.

    Args:
        number: the program's number in its process.
        name: name such as `jit(step)`.
        where: the user's line that has called the program.
        devices: number of its devices.
        seconds: duration of its compilation.
        arguments, outputs, temporaries: sizes; `outputs` without those that take the place of
            arguments.
        flops: floating-point operations of one device in a call.
        collectives: collectives of a call.
        inputs: name, type and sharding of its first arguments.
        unsharded: arguments of which each device holds the whole.
        empty: names of arguments without rows.
        changed: what has changed since the last compilation of this function; "" if it is the
            first.
        memory: memory of the chip that it was compiled for; 0 for CPU devices.
        refused: why it could not be compiled for that chip; "" if it was, or for CPU devices.

    """

    number: int
    name: str
    where: str
    devices: int
    seconds: float
    arguments: int
    outputs: int
    temporaries: int
    flops: float
    collectives: tuple[Collective, ...]
    inputs: tuple[str, ...] = ()
    unsharded: tuple[WholeArgument, ...] = ()
    empty: tuple[str, ...] = ()
    changed: str = ""
    memory: int = 0
    refused: str = ""

    @property
    def needed(self) -> int:
        """Bytes on one device while the program runs."""
        return self.arguments + self.outputs + self.temporaries


class Calls(HookMessage):
    """Number of calls of each program, by its number, and the highest use of memory so far.

    `peak` counts the bytes of all arrays on one device during a call of program `peak_in`.
    """

    counts: tuple[int, ...]
    peak: int
    peak_in: int


class Checkpoint(HookMessage):
    """Notice of a checkpoint that was not written, or not read; `bytes` of this process."""

    action: str
    path: str
    bytes: int
    where: str
