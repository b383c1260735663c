"""Digests of arrays that several processes hold: arguments and outputs of spanning programs.

Nothing waits, unless a launch has many arrays: a digest is enqueued when an array has been made,
and read at a later launch, once it is computed. No array is kept, and digests do not show in
`jax.live_arrays()`, by which programs look for leaks.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import threading
import time
from array import array
from binascii import b2a_base64
from collections import deque

from ....hook.wrapping import wrap_like
from ..messages import ComputedDigests, Digests, NotComparing, ReplicatedPart, ReplicatedParts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from ....hook.agent_link import AgentLink
    from .programs import SpanningProgram
    from .sequences import Sequence as Sequence_

    Named = tuple[int, str, Any]


#: Launches of a program that are all compared.
FIRST = 20
# Later ones are at least so many seconds apart, and so many times as long as all comparisons take.
_EVERY_S, _TIMES = 1.0, 100
# Bytes of which a device computes the digest in a second, at least: a CPU's core, other devices.
_BYTES_PER_S = {"cpu": 1e9, "": 3e11}
# Digests that may wait for their arrays: a device accepts 32 programs that are not over, and with
# JAX before 0.12 ranks hang when a program launches more on CPU; it should have most of them.
_MOST_WAITING = 8
# Characters of the reason why values are not compared.
_MOST_REASON = 200


class StartedDigests:
    """Digests of a launch that are being computed.

    Args:
        count: number of digests; -1 if they cannot be computed.
        make_message: makes the message from all of them.

    Attributes:
        words: those that are computed.

    """

    def __init__(self, count: int, make_message: Callable[[str], ComputedDigests]) -> None:
        self.count = count
        self.make_message = make_message
        self.words = array("I")


class Values:
    """Reporter of digests of what this process has in common with others.

    Args:
        link: the link to the agent.
        list_leaves: JAX's `tree_leaves`.

    Attributes:
        running: JAX's results that hold digests, and their launches; see `collect`.
        programs: number of programs that are compared.

    """

    def __init__(self, link: AgentLink, list_leaves: Callable[[Any], list[Any]]) -> None:
        self.link = link
        self.list_leaves = list_leaves
        self.running: deque[tuple[Any, StartedDigests]] = deque()
        self.programs = 0
        self._oldest: Any = None  # the digest in the first results, as an array
        self._entrance = threading.RLock()
        self._executables: dict[Any, Any] = {}  # by shape, type and device
        self._shared: dict[Any, list[tuple[int, str]]] = {}  # by sharding and shape
        self._described: dict[tuple[int, bool], tuple[ReplicatedPart, ...]] = {}
        self._processor = ""
        self._hide_digest()
        atexit.register(self.collect)

    def _hide_digest(self) -> None:
        """Keep the one digest that is an array already from programs that look for leaks."""
        import jax

        real = jax.live_arrays

        def live_arrays(*args: Any, **kwargs: Any) -> list[Any]:
            return [each for each in real(*args, **kwargs) if each is not self._oldest]

        jax.live_arrays = wrap_like(real, live_arrays)

    def start(
        self,
        sequence: Sequence_,
        number: int,
        program: SpanningProgram,
        arrays: Iterable[Named],
        *,
        of_arguments: bool,
    ) -> float:
        """Start to compute digests of what a launch takes, or has made, that others hold too.

        Returns:
            seconds that the devices take for it, about.

        """
        parts, shards = [], []
        for index, name, value in arrays:
            for shard, part in self._find_shared(value):
                parts.append(ReplicatedPart(index, name, part))
                shards.append(shard)
        if not parts:
            return 0.0
        place = program.identity, of_arguments
        described = tuple(parts)
        with self._entrance:
            if self._described.get(place) != described:
                self._described[place] = described
                self.programs = len({identity for identity, _ in self._described})
                self._processor = self._processor or _find_processor()
                self.link.send(
                    ReplicatedParts(*place, described, self._processor, program.is_mapped)
                )
            key = sequence.key
            started = StartedDigests(
                len(shards), lambda words: ComputedDigests(Digests(key, number, *place, words))
            )
            for shard in shards:
                if len(self.running) >= _MOST_WAITING:
                    self.collect(waits=True)
                results = self._get_executable(shard).execute_sharded([shard])
                self.running.append((results, started))
        per_s = _BYTES_PER_S.get(shards[0].device.platform, _BYTES_PER_S[""])
        return float(sum(shard.nbytes for shard in shards) / per_s)

    def collect(self, *, waits: bool = False) -> None:
        """Read digests that have been computed; `waits`: wait for the oldest one."""
        if not self._entrance.acquire(waits):
            return
        try:
            while self.running:
                results, started = self.running[0]
                try:
                    if self._oldest is None:
                        [[self._oldest]] = results.disassemble_into_single_device_arrays()
                    if not waits and not self._oldest.is_ready():
                        break
                    started.words.append(self._read_oldest())
                except Exception:  # the launch has failed, as its caller is told
                    started.count = -1
                waits, self._oldest = False, None
                self.running.popleft()
                if len(started.words) == started.count:
                    words = b2a_base64(started.words.tobytes(), newline=False).decode()
                    self.link.send(started.make_message(words))
        finally:
            self._entrance.release()

    def _read_oldest(self) -> int:
        import jax
        import numpy as np

        with jax.transfer_guard_device_to_host("allow"):
            return int(np.asarray(self._oldest))

    def _find_shared(self, value: Any) -> Iterator[tuple[Any, str]]:
        """Yield the parts of an array that this process and others hold: shard and part."""
        value = getattr(value, "_base_array", value)  # of a key
        sharding = getattr(value, "sharding", None)
        if sharding is None or sharding.is_fully_addressable or not value.size:
            return
        if value.is_deleted():  # the program has consumed it
            return
        place = sharding, value.shape
        if place not in self._shared:
            self._shared[place] = _list_shared(value, sharding)
        for shard, part in self._shared[place]:
            yield value._arrays[shard], part

    def _get_executable(self, shard: Any) -> Any:
        [device] = shard.devices()
        place = shard.shape, shard.dtype, device
        if place not in self._executables:
            self._executables[place] = compile_digest(shard.shape, get_type(shard.dtype), device)
        return self._executables[place]


def _list_shared(value: Any, sharding: Any) -> list[tuple[int, str]]:
    """Return each part that this process and others hold: its first shard here, and the part.

    Of an array in another memory than the devices' own, nothing is compared.
    """
    default = str(next(iter(sharding.addressable_devices)).default_memory().kind)
    if sharding.memory_kind not in (None, default):
        return []
    if sharding.is_fully_replicated:
        return [(0, "")]
    size = math.prod(sharding.shard_shape(value.shape))
    if size * len(sharding.device_set) == value.size:
        return []  # each device has a part of its own
    places = {next(iter(shard.devices())): n for n, shard in enumerate(value._arrays)}
    owners: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for device, slices in sharding.devices_indices_map(value.shape).items():
        part = _format_part(slices)
        owners.setdefault(part, set()).add(device.process_index)
        if device in places:
            first.setdefault(part, places[device])
    return [(place, part) for part, place in first.items() if len(owners[part]) > 1]


def _format_part(slices: Sequence[slice]) -> str:
    bounds = ("" if each == slice(None) else (each.start or 0, each.stop) for each in slices)
    return f"[{', '.join(':'.join(map(str, each)) or ':' for each in bounds)}]"


class ComparedProgram:
    """Program whose arguments and outputs are compared at some launches.

    Args:
        values: the reporter.
        program: the program.

    Attributes:
        left: number of launches up to the next one that is compared; below 0 for none.

    """

    __slots__ = ("_arguments", "_compared_at", "_program", "_ran", "_spent_s", "_stride", "_until",
                 "_values", "left")  # fmt: skip

    def __init__(self, values: Values, program: SpanningProgram) -> None:
        self._values = values
        self._program = program
        # Of each array among the arguments, its number and name; None if the program ignores it.
        self._arguments: list[tuple[int, str] | None] = []
        self.left = self._stride = self._until = 1
        self._ran, self._compared_at, self._spent_s = 0, 0.0, 0.0

    def begin_anew(self) -> None:
        """Compare the first launches, also if there have been some."""
        self.left = self._stride = self._until = 1
        self._ran, self._compared_at, self._spent_s = 0, 0.0, 0.0

    def before_launch(self, sequence: Sequence_, execution: Any, args: Sequence[Any]) -> None:
        """Compare the arguments, which the launch may consume, if it is time."""
        if self.left != 1:
            return
        names, kept = iter(self._program.names[0]), execution.kept_var_idx
        named = [(n, next(names, f"[{n}]")) if n in kept else None for n in range(len(args))]
        self._arguments = [name for name, arg in zip(named, args) if hasattr(arg, "sharding")]
        self._start(sequence, sequence.count + 1, args, of_arguments=True)

    def after_launch(self, sequence: Sequence_, out: Any) -> None:
        """Compare the outputs of a launch by JAX's Python code, if it is time."""
        self.left -= 1
        if not self.left:
            self._finish(sequence, out)
        elif self._values.running:
            self._values.collect()

    def compare(self, sequence: Sequence_, args: Any, kwargs: Any, out: Any) -> None:
        """Compare the arguments and outputs of a launch by JAX's C++ code."""
        self._start(sequence, sequence.count, (args, kwargs), of_arguments=True)
        self._finish(sequence, out)

    def _finish(self, sequence: Sequence_, out: Any) -> None:
        self._start(sequence, sequence.count, out, of_arguments=False)
        self._values.collect()
        if self.left == 0:
            self.choose_next(self._spent_s, self._values.programs)
        self._spent_s = 0.0

    def _start(self, sequence: Sequence_, number: int, values: Any, *, of_arguments: bool) -> None:
        if self.left < 0 or not sequence.key:
            return
        began = time.perf_counter()
        try:
            leaves = self._values.list_leaves(values)
            named = self._name_arguments(leaves) if of_arguments else self._name_outputs(leaves)
            what = sequence, number, self._program, named
            self._spent_s += self._values.start(*what, of_arguments=of_arguments)
        except Exception as error:
            self.left = -1
            reason = f"{type(error).__name__}: {error}"[:_MOST_REASON]
            self._values.link.send(NotComparing(self._program.identity, reason))
        self._spent_s += time.perf_counter() - began

    def _name_arguments(self, leaves: Sequence[Any]) -> Iterator[Named]:
        """Yield the arrays among a launch's arguments, as they are numbered in the first launch."""
        arrays = [leaf for leaf in leaves if hasattr(leaf, "sharding")]
        if len(arrays) == len(self._arguments):
            for place, value in zip(self._arguments, arrays):
                if place is not None:
                    yield *place, value

    def _name_outputs(self, leaves: Sequence[Any]) -> Iterator[Named]:
        names = self._program.names[1]
        for index, value in enumerate(leaves):
            yield index, names[index] if index < len(names) else f"[{index}]", value

    def choose_next(self, cost_s: float, programs: int) -> None:
        """Choose the launch that is compared next.

        After the first ones it is the next multiple of a power of two, which follows the time. So
        ranks whose times differ choose the same launches, or one of them every other of them.

        Args:
            cost_s: seconds that this comparison has taken.
            programs: number of programs that are compared.

        """
        now = time.monotonic()
        self._ran += self._until
        if self._ran >= FIRST:
            elapsed_s = now - self._compared_at
            wanted_s = max(_EVERY_S, _TIMES * cost_s * programs)
            if elapsed_s < wanted_s:
                self._stride *= 2
            elif elapsed_s > 4 * wanted_s and self._stride > 1:
                self._stride //= 2
        self._compared_at = now
        self.left = self._until = self._stride - self._ran % self._stride


def _find_processor() -> str:
    """Return what computes in this process: equal ones compute equal bits."""
    import jax

    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return str(device.device_kind)
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.partition(":")[2].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        import platform

        name = platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


# --- program that computes the digest of an array on the device that holds it ---

# Bits of the exponent and the mantissa of types with IEEE's infinities.
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
_BITS = re.compile(r"[bfui]+(\d+)")  # such as f8E4M3FN or i4
_COMPLEX = "complex<"
# Numbers of murmur3 and of the golden ratio.
_PLACE, _MIX = 0x9E3779B9, ((0x85EBCA6B, 15), (0xC2B2AE35, 13))
_WORD = "tensor<ui32>"


def compile_digest(shape: Sequence[int], type_: str, device: Any) -> Any:
    """Return an executable that computes the digest of an array on a device.

    Raises:
        Exception: JAX's, if it cannot be compiled.

    """
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    client = device.client
    options = compiler.get_compile_options(1, 1, np.array([[device.id]]))
    with mlir.make_ir_context():
        module = ir.Module.parse(write_digest(shape, type_))
        if not hasattr(client, "compile_and_load"):  # before jax 0.7
            return client.compile(mlir.module_to_bytecode(module), compile_options=options)
        devices = xla_client.DeviceList((device,))
        return client.compile_and_load(module, executable_devices=devices, compile_options=options)


def get_type(dtype: Any) -> str:
    """Return the MLIR type of a dtype."""
    from jax._src.interpreters import mlir

    with mlir.make_ir_context():
        return str(mlir.dtype_to_ir_type(dtype))


def write_digest(shape: Sequence[int], type_: str) -> str:
    """Return the StableHLO of a program that computes the digest of an array."""
    whole = f"tensor<{''.join(f'{size}x' for size in shape)}{type_}>"
    writer = _Writer("%a", whole, math.prod(shape), type_)
    if type_.startswith(_COMPLEX):
        writer.join_parts(type_[len(_COMPLEX) : -1])
    writer.make_words()
    digest = writer.sum()
    return "\n".join((
        "module @mcjax_digest {",
        f"func.func public @main(%a: {whole}) -> {_WORD} {{",
        *writer.lines,
        f"return {digest} : {_WORD}",
        "}}",
    ))  # fmt: skip


class _Writer:
    """Writer of the operations on an array, which it makes flat.

    Args:
        value: name of the array.
        whole: type of the array.
        size: number of its elements.
        element: type of an element.

    Attributes:
        lines: the operations.

    """

    def __init__(self, value: str, whole: str, size: int, element: str) -> None:
        self.lines: list[str] = []
        self._value, self._type = value, whole
        self._size, self._element = size, element
        self._convert("reshape", element)

    def _get_type(self, element: str) -> str:
        return f"tensor<{self._size}x{element}>"

    def _add(self, operation: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = stablehlo.{operation}")
        return name

    def _convert(self, how: str, element: str, to: str = "") -> None:
        """Make another type of the array; `to`: one that is not flat."""
        to = to or self._get_type(element)
        if to != self._type:
            self._value = self._add(f"{how} {self._value} : ({self._type}) -> {to}")
        self._type, self._element = to, element

    def _make_constant(self, number: int) -> str:
        return self._add(f"constant dense<{number}> : {self._type}")

    def _combine(self, name: str, value: str, number: int) -> str:
        return self._add(f"{name} {value}, {self._make_constant(number)} : {self._type}")

    def join_parts(self, part: str) -> None:
        """Make complex numbers an array of their real and imaginary parts."""
        half, type_ = self._get_type(part), self._type
        parts = [
            self._add(f"{name} {self._value} : ({type_}) -> {half}") for name in ("real", "imag")
        ]
        self._size *= 2
        self._type, self._element = self._get_type(part), part
        both = f"({half}, {half}) -> {self._type}"
        self._value = self._add(f"concatenate {', '.join(parts)}, dim = 0 : {both}")

    def make_words(self) -> None:
        """Make the array one of words of 32 bits."""
        found = _BITS.match(self._element)
        bits = int(found[1]) if found is not None else 32
        if bits > 1:
            numbers = _FLOATS.get(self._element)
            self._convert("bitcast_convert", f"ui{bits}")
            if numbers is not None:
                self._make_equal(bits, *numbers)
        if bits == 64:
            self._convert("bitcast_convert", "ui32", f"tensor<{self._size}x2xui32>")
            self._size *= 2
            self._convert("reshape", "ui32")
        else:
            self._convert("convert", "ui32")

    def _make_equal(self, bits: int, exponent: int, mantissa: int) -> None:
        """Give floats, which are there as bits, one NaN and one zero."""
        type_, flags = self._type, self._get_type("i1")
        infinity = ((1 << exponent) - 1) << mantissa
        magnitude = self._combine("and", self._value, (1 << (bits - 1)) - 1)
        for how, than, instead in (("GT", infinity, infinity + 1), ("EQ", 0, 0)):
            limit = self._make_constant(than)
            is_one = self._add(
                f"compare {how}, {magnitude}, {limit} : ({type_}, {type_}) -> {flags}"
            )
            other = self._make_constant(instead)
            self._value = self._add(f"select {is_one}, {other}, {self._value} : {flags}, {type_}")

    def sum(self) -> str:
        """Return the sum of the words, each mixed with its place."""
        place = self._combine("multiply", self._add(f"iota dim = 0 : {self._type}"), _PLACE)
        value = self._add(f"xor {self._value}, {place} : {self._type}")
        for factor, shift in _MIX:
            value = self._combine("multiply", value, factor)
            shifted = self._combine("shift_right_logical", value, shift)
            value = self._add(f"xor {value}, {shifted} : {self._type}")
        zero = self._add(f"constant dense<0> : {_WORD}")
        return self._add(
            f"reduce({value} init: {zero}) applies stablehlo.add across dimensions = [0] "
            f": ({self._type}, {_WORD}) -> {_WORD}"
        )
