"""Programs that span processes, as messages describe them: from their code, and once compiled."""

from __future__ import annotations

import io
import math
import re
from collections import Counter, defaultdict

from ....hook.spmd_program import find_groups, find_program_name
from ..messages import Collective, PreviewedProgram, ProgramArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

# Attributes of arguments that a program takes over.
_DONATED = ("jax.buffer_donor", "tf.aliasing_output")
# Arguments that are named in a message; the parameters of a large model are some thousands.
_MOST_INPUTS = 1000


class UnrunProgram:
    """Program that spans processes, before its compilation.

    Attributes:
        name: name such as `jit_step`.
        devices: its devices, in its order.
        options: JAX's options for the compiler.
        parameters: each parameter's place and type in its code; tokens of effects come first.
        donated: for each parameter, True if the program takes it over.
        bytecode: the program's code; b"" if it is not needed.
        executable: JAX's executable, kept so that its id stays its own.
        number: its number in messages; -1 until it is reported.
        before: number of the program that the same call has compiled before, or -1.
        where: the user's line that calls it.
        shardings, out_shardings: those of its parameters but tokens, and of its outputs.

    """

    executable: Any = None
    number = before = -1
    where = ""
    shardings: Sequence[Any] = ()
    out_shardings: Sequence[Any] = ()

    def __init__(self, computation: Any, devices: Sequence[Any], options: Any, keep: bool) -> None:
        from jax._src.lib.mlir import ir

        self.name = find_program_name(computation)
        self.devices = devices
        self.options = options
        self.bytecode = b""
        with computation.context:
            main: Any = ir.SymbolTable(computation.operation)["main"]
            has: Any = main.attributes["arg_attrs"] if "arg_attrs" in main.attributes else ()  # noqa: SIM401, no mapping
            self.donated = [any(mark in each for mark in _DONATED) for each in has]
            self.parameters = [
                (str(parameter.location), str(parameter.type))
                for parameter in main.regions[0].blocks[0].arguments
            ]
            if keep:
                code = io.BytesIO()
                computation.operation.write_bytecode(code)
                self.bytecode = code.getvalue()


def describe(
    program: UnrunProgram, sizes: Sequence[int], executable: Any = None
) -> PreviewedProgram:
    """Return the message that describes a program.

    Args:
        program: the program.
        sizes: number of ranks on each host.
        executable: the program, compiled for chips; None for CPU devices.

    """
    executable = executable or program.executable
    stats = executable.get_compiled_memory_stats()
    text = "\n".join(module.to_string() for module in executable.hlo_modules())
    host_of = [host for host, size in enumerate(sizes) for _ in range(size)]
    hosts = [host_of[device.process_index] for device in program.devices]
    tokens = len(program.parameters) - len(program.shardings)
    return PreviewedProgram(
        number=program.number,
        name=program.name,
        where=program.where,
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes - stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        flops=_read_flops(executable),
        collectives=find_collectives(text, hosts, *_find_mesh(program)),
        inputs=tuple(
            make_argument(*parameter, sharding)
            for parameter, sharding in zip(
                program.parameters[tokens:], program.shardings[:_MOST_INPUTS]
            )
        ),
        before=program.before,
    )


def make_argument(location: str, type_: str, sharding: Any) -> ProgramArgument:
    """Return an argument of a program.

    Args:
        location: its place in the program's code, such as `loc("w")`.
        type_: its type there, such as `tensor<8x4xf32>`.
        sharding: its sharding.

    """
    name = re.match(r'loc\("(.*?)"', location)
    *sizes, dtype = re.split(r"(?<=\d)x", type_[len("tensor<") : -1])
    shape = [int(size) for size in sizes]
    spec = f"P({', '.join(map(repr, sharding.spec))})" if hasattr(sharding, "spec") else sharding
    return ProgramArgument(
        name[1] if name is not None else "an argument",
        f"{dtype}[{','.join(map(str, shape))}]",
        f"sharded {spec}",
        _compute_bytes(dtype, shape),
        sharding.is_fully_replicated,
    )


def _compute_bytes(dtype: str, shape: Iterable[int]) -> int:
    """Return the size of an array, from a compiler's name of its type, such as `bf16`."""
    bits = re.search(r"\d+", dtype)  # none in "pred"
    return math.prod(shape) * (int(bits[0]) if bits is not None else 8) // 8


# --- a compiled program ---


def _read_flops(executable: Any) -> float:
    try:
        return max(0.0, float(executable.cost_analysis()["flops"]))
    except Exception:  # a compiler that does not count
        return 0.0


def _find_mesh(program: UnrunProgram) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """Return the axes of the first mesh of all devices, and each device's place on them."""
    import numpy as np

    for sharding in (*program.shardings, *program.out_shardings):
        mesh = getattr(sharding, "mesh", None)
        at = {device: place for place, device in np.ndenumerate(getattr(mesh, "devices", ()))}
        if mesh is not None and at.keys() == set(program.devices):
            return tuple(map(str, mesh.axis_names)), [at[each] for each in program.devices]
    return (), []


_FUNCTION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_COLLECTIVE = re.compile(
    r"(\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all"
    r"|collective-permute|collective-broadcast)(-start)?\("
)
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|branch_computations|called_computations)"
    r"=(%?[\w.\-]+|\{[^{}]*\})"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SHAPE = re.compile(r"\b(pred|bf16|[a-z]\d\w*)\[([\d,]*)\]")


def find_collectives(
    text: str,
    hosts: Sequence[int],
    axes: Sequence[str] = (),
    places: Sequence[Sequence[int]] = (),
) -> tuple[Collective, ...]:
    """Return the collectives of a compiled program, those of a loop repeated.

    Args:
        text: the program, as HLO text.
        hosts: number of each device's host, in the program's order of devices.
        axes: names of the axes of the program's mesh; () if it has none.
        places: position of each device along these axes.

    """
    found: defaultdict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for operation, count in _list_operations(text):
        match = _COLLECTIVE.match(operation.partition(" = ")[2])
        if match is None or "is_host_transfer=true" in operation:
            continue
        groups = [group for group in find_groups(operation, len(hosts)) if len(group) > 1]
        if not groups:
            continue
        size = count * _compute_result_bytes(match[1], match[2], bool(match[3]), len(groups[0]))
        along = tuple(
            axis
            for number, axis in enumerate(axes)
            if any(len({places[device][number] for device in group}) > 1 for group in groups)
        )
        total = found[match[2], along]
        total[0] += count
        total[1] += size
        crossing = sum(
            here * (len(group) - here)
            for group in groups
            for here in Counter(hosts[device] for device in group).values()
        )
        total[2] += size * crossing / sum(len(group) * (len(group) - 1) for group in groups)
    return tuple(
        Collective(kind, along, int(count), int(size), int(crossing))
        for (kind, along), (count, size, crossing) in sorted(found.items())
    )


def _list_operations(text: str) -> Iterator[tuple[str, int]]:
    """Yield each operation that may be a collective, and how often a call of the program runs it.

    A loop whose length is not known counts once.
    """
    counts: defaultdict[str, int] = defaultdict(int)
    for entry, name, body in reversed(_FUNCTION.findall(text)):  # each is before its callers
        count = 1 if entry else counts[name]
        for line in body.splitlines():
            yield line, count
            trips = _TRIPS.search(line)
            for kind, called in _CALLED.findall(line):
                repeated = int(trips[1]) if trips is not None and kind == "body" else 1
                for each in re.findall(r"[\w.\-]+", called):
                    counts[each] += count * repeated


def _compute_result_bytes(shapes: str, kind: str, is_start: bool, group: int) -> int:
    """Return the bytes of a collective's result on one device; of a reduce-scatter its operand.

    Args:
        shapes: type of the operation's value, with several for a tuple.
        kind: XLA's name.
        is_start: True for an operation whose value has the operands too.
        group: number of devices that communicate.

    """
    sizes = [
        _compute_bytes(dtype, (int(size) for size in dimensions.split(",") if size))
        for dtype, dimensions in _SHAPE.findall(shapes)
    ]
    if is_start and kind == "collective-permute":
        sizes = sizes[1:2]
    elif is_start and kind != "all-reduce":
        sizes = sizes[len(sizes) // 2 :]
    return sum(sizes) * (group if kind == "reduce-scatter" else 1)
