"""Programs that span processes, before and after their compilation, as messages describe them."""

from __future__ import annotations

import math
import re
import time

from ....hook.spmd_program import find_program_name
from ..messages import PreviewedProgram, WholeArgument
from .collectives import Layout, find_collectives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .zeros import Zeros

# Attributes of a program's arguments.
_DONATED = ("jax.buffer_donor", "tf.aliasing_output")
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")
# Attribute of an output whose axes have an unusual order in memory.
_LAYOUT = "mhlo.layout_mode"
# Smaller arguments need not be sharded; and how many are named.
_UNSHARDED_BYTES, _MOST_NAMED = 1 << 20, 8
_MOST_INPUTS = 1000


class Parameter:
    """Argument of a program, as its code describes it: name, type such as `f32[8,4]`, sharding."""

    def __init__(self, name: str, kind: str, sharding: str, is_donated: bool) -> None:
        self.name = name
        self.sharding = sharding
        self.is_donated = is_donated
        # tensor<8x4xf32>; of another type, such as a token, nothing is known.
        *sizes, self.dtype = kind.removeprefix("tensor<").removesuffix(">").split("x")
        self.shape = [int(size) for size in sizes if size.isdigit()]

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) if bits is not None else 8) // 8

    def describe_change(self, before: Parameter) -> str:
        """Return how the argument differs from the one of an earlier program; "" if it does not."""
        if (self.shape, self.dtype) != (before.shape, before.dtype):
            return f"{self.name} is {self._format_type()}, before it was {before._format_type()}"
        now, then = map(format_sharding, (self.sharding, before.sharding))
        return f"{self.name} is {now}, before it was {then}" if now != then else ""

    def __str__(self) -> str:
        return f"{self.name} is {self._format_type()} {format_sharding(self.sharding)}"

    def _format_type(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def format_sharding(text: str) -> str:
    """Return an argument's sharding, as in a program's code, in words."""
    if not text:
        return "not committed to devices"
    axes = re.search(r"<@[^<,]*, \[([^\[\]]*)\](?:>|,)", text)
    if axes is None:
        return f"sharded {text}"
    parts = re.findall(r"\{([^{}]*)\}", axes[1])
    words = [part.replace('"', "'").replace(", ?", "").replace("?", "") or "None" for part in parts]
    return f"sharded P({', '.join(words)})"


class Code:
    """Program that spans processes, before its compilation.

    Attributes:
        name: name such as `jit_step`.
        parameters: its arguments; tokens of effects come first.
        devices: its devices, in its order.
        has_layouts: True if the user has chosen the order in memory of outputs' axes.
        options: JAX's options for the compiler.
        bytecode: the program; b"" if it is not needed.
        began: time.monotonic() at the beginning of the compilation.

    """

    def __init__(self, computation: Any, devices: Sequence[Any], options: Any, keep: bool) -> None:
        self.name = find_program_name(computation)
        self.devices = devices
        self.options = options
        with computation.context:
            main = _find_main(computation)
            self.parameters = list(_read_parameters(main))
            self.has_layouts = "res_attrs" in main.attributes and _LAYOUT in str(
                main.attributes["res_attrs"]
            )
            self.bytecode = _make_bytecode(computation) if keep else b""
        self.began = time.monotonic()

    def select_donated(self, args: Sequence[Any]) -> list[Any]:
        """Return the arguments that the program takes over, of those that it uses."""
        own = self.parameters[len(self.parameters) - len(args) :] if args else []
        pairs = zip(own, args)
        return [arg for each, arg in pairs if each.is_donated and hasattr(arg, "delete")]

    def describe_change(self, before: Code) -> str:
        """Return why this is another program than an earlier one of the same function.

        It is "" if only the meshes of arguments differ, or how their shardings are written.
        """
        counts = len(self.parameters), len(before.parameters)
        if counts[0] != counts[1]:
            return f"it has {counts[0]} arguments, before it had {counts[1]}"
        pairs = list(zip(self.parameters, before.parameters))
        changes = [now.describe_change(then) for now, then in pairs]
        if any(changes) or any(now.sharding != then.sharding for now, then in pairs):
            return next(filter(None, changes), "")
        return "with equal arguments: a static argument or a Python value in it is another one"


def _find_main(computation: Any) -> Any:
    """Return the function that a program begins with."""
    for operation in computation.body.operations:
        attributes = operation.attributes
        if "sym_name" in attributes and attributes["sym_name"].value == "main":
            return operation
    raise ValueError("a program without main()")


def _read_parameters(main: Any) -> Iterator[Parameter]:
    attributes = main.attributes
    own = list(attributes["arg_attrs"]) if "arg_attrs" in attributes else []
    for number, argument in enumerate(main.regions[0].blocks[0].arguments):
        has: Any = own[number] if number < len(own) else {}
        sharding = next((str(has[name]) for name in _SHARDINGS if name in has), "")
        name = re.match(r'loc\("(.*?)"', str(argument.location))
        is_donated = any(mark in has for mark in _DONATED)
        title = name[1] if name is not None else f"argument {number}"
        yield Parameter(title, str(argument.type), sharding, is_donated)


def _make_bytecode(computation: Any) -> bytes:
    import io

    code = io.BytesIO()
    computation.operation.write_bytecode(code)
    return code.getvalue()


class CompiledCode:
    """Compiled program that spans processes.

    Attributes:
        code: what it was compiled from.
        real: JAX's executable, kept so that its id stays its own.
        number: its number in messages.
        calls: number of its calls.
        outputs, arguments, temporaries: bytes on one device; `outputs` without those that take the
            place of arguments.
        is_reported: True if the launcher knows it.

    """

    def __init__(self, code: Code, real: Any, number: int) -> None:
        self.code = code
        self.real = real
        self.number = number
        self.calls = 0
        self.is_reported = False
        self.seconds = time.monotonic() - code.began
        stats = real.get_compiled_memory_stats()
        self.outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
        self.arguments, self.temporaries = stats.argument_size_in_bytes, stats.temp_size_in_bytes

    def make_zeros(self, zeros: Zeros) -> Callable[[int, Any, Any], list[Any]]:
        """Return a function that makes an output, from its number, type and sharding."""
        if not self.code.has_layouts:
            return lambda number, aval, sharding: zeros.make(aval, sharding)
        try:
            from jax._src.layout import Format, Layout
        except ImportError:  # before jax 0.7
            return lambda number, aval, sharding: zeros.make(aval, sharding)
        layouts = [Layout.from_pjrt_layout(each) for each in self.real.get_output_layouts()]
        return lambda number, aval, sharding: zeros.make(
            aval, sharding, lambda place: Format(layouts[number], place)
        )

    def make_message(
        self, where: str, sizes: Sequence[int], shardings: tuple[Any, Any], changed: str
    ) -> PreviewedProgram:
        """Return the message that describes the program.

        Args:
            where: the user's line that calls it.
            sizes: number of ranks on each host.
            shardings: shardings of its arguments, and of its outputs.
            changed: why it is another program than an earlier one of the same function, or "".

        """
        given, made = shardings
        text = "\n".join(module.to_string() for module in self.real.hlo_modules())
        layout = make_layout(self.code.devices, sizes, (*given, *made))
        return PreviewedProgram(
            number=self.number,
            name=self.code.name,
            where=where,
            devices=len(self.code.devices),
            seconds=self.seconds,
            arguments=self.arguments,
            outputs=self.outputs,
            temporaries=self.temporaries,
            flops=_read_flops(self.real),
            collectives=find_collectives(text, layout),
            inputs=tuple(map(str, self.code.parameters[:_MOST_INPUTS])),
            unsharded=_find_unsharded(self.code.parameters, given),
            empty=tuple(each.name for each in self.code.parameters if 0 in each.shape),
            changed=changed,
        )


def _read_flops(executable: Any) -> float:
    try:
        costs = executable.cost_analysis()
        costs = costs[0] if isinstance(costs, list) else costs
        return max(0.0, float(costs["flops"]))
    except Exception:  # a compiler that does not count
        return 0.0


def _find_unsharded(parameters: Sequence[Parameter], given: Any) -> tuple[WholeArgument, ...]:
    """Return the largest arguments of which each device holds the whole."""
    found = [
        WholeArgument(parameter.name, parameter.bytes)
        for parameter, sharding in zip(parameters[len(parameters) - len(given) :], given)
        if parameter.bytes >= _UNSHARDED_BYTES and getattr(sharding, "is_fully_replicated", False)
    ]
    return tuple(sorted(found, key=lambda argument: -argument.bytes)[:_MOST_NAMED])


def make_layout(devices: Sequence[Any], sizes: Sequence[int], shardings: Sequence[Any]) -> Layout:
    """Return the places of a program's devices along the first mesh that has all of them.

    Args:
        devices: the devices, in the program's order.
        sizes: number of ranks on each host.
        shardings: shardings of the program's arrays.

    """
    host_of = [host for host, size in enumerate(sizes) for _ in range(size)]
    processes = [device.process_index for device in devices]
    hosts = tuple(host_of[p] if p < len(host_of) else p for p in processes)
    for sharding in shardings:
        mesh = getattr(sharding, "mesh", None)
        placed = getattr(mesh, "devices", None)
        if mesh is None or placed is None or placed.size != len(devices):
            continue
        import numpy as np

        at = {device.id: index for index, device in np.ndenumerate(placed)}
        if all(device.id in at for device in devices):
            axes = tuple(map(str, mesh.axis_names))
            return Layout(hosts, axes, tuple(at[device.id] for device in devices))
    return Layout(hosts)
