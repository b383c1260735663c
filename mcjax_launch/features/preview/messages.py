"""Requests to ranks that run alone, and their reports of programs that span processes."""

from __future__ import annotations

from ...wire.codec import Nested
from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent


class Alone(ToAgent):
    """Order to start the ranks of this host a few at a time, because each runs alone."""


class Wanted(Nested):
    """Request of the launcher to a rank, in the feature's variable.

    Args:
        sizes: number of ranks on each host.
        steps: number of calls of one program after which the run ends; 0 for no limit.
        topology: TPU topology to compile for, such as `v5e:8x8`; "" for CPU devices.

    """

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


class ProgramArgument(Nested):
    """Argument of a program.

    Args:
        name: name in the user's function, such as `params['w']`.
        type: type of the whole array, such as `f32[8,4]`.
        sharding: sharding in words, such as `sharded P('fsdp', None)`.
        bytes: size of the whole array.
        is_whole: True if each device holds the whole array.

    """

    name: str
    type: str
    sharding: str
    bytes: int
    is_whole: bool


class PreviewedProgram(HookMessage):
    """Program that spans processes and has been compiled. Sizes are bytes on one device.

    Args:
        number: the program's number in its process.
        name: name such as `jit_step`.
        where: the user's line that has called the program.
        arguments, outputs, temporaries: sizes; `outputs` without those that take the place of
            arguments.
        flops: floating-point operations of one device in a call.
        collectives: collectives of a call.
        inputs: its first arguments.
        before: number of the program that the same call has compiled before; -1 for none.
        memory: memory of the chip that it was compiled for; 0 for CPU devices.
        refused: why it could not be compiled for that chip; "" if it was, or for CPU devices.

    """

    number: int
    name: str
    where: str
    arguments: int
    outputs: int
    temporaries: int
    flops: float = 0.0
    collectives: tuple[Collective, ...] = ()
    inputs: tuple[ProgramArgument, ...] = ()
    before: int = -1
    memory: int = 0
    refused: str = ""

    @property
    def needed(self) -> int:
        """Bytes on one device while the program runs."""
        return self.arguments + self.outputs + self.temporaries


class Calls(HookMessage):
    """Number of calls of each program, by its number."""

    counts: tuple[int, ...]


class Checkpoint(HookMessage):
    """Notice of a checkpoint that was not written, or not read; `bytes` of this process."""

    action: str
    path: str
    bytes: int
    where: str
