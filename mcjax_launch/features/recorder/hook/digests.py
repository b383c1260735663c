"""Program that computes the digest of an array on the device that holds it: of its bits.

A digest is the sum of the array's words of 32 bits, each mixed with its place. The program is
written as StableHLO and launched without `jit`: no setting of the user's program affects it, and no
hook of JAX sees it. All NaNs count as equal, and so do 0.0 and -0.0: which of them a collective
returns may depend on the order of its operands, which each process has its own.
"""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
