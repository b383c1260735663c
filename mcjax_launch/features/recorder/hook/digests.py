"""Program that computes the digest of an array on the device that holds it: of its bits.

A digest is the sum of the array's words of 32 bits, each mixed with its place. The program is
written as StableHLO and launched without `jit`: no setting of the user's program affects it, and no
hook of JAX sees it. All NaNs count as equal, and so do 0.0 and -0.0: which of them a collective
returns may depend on the order of its operands, which each process has its own.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Bits of the exponent and the mantissa of types with IEEE's infinities.
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
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
    writer = _Writer(math.prod(shape))
    flat = writer.convert("reshape", "%a", whole, writer.type(type_))
    if type_.startswith(_COMPLEX):
        part = type_[len(_COMPLEX) : -1]
        parts = [writer.convert(name, flat, writer.type(type_), writer.type(part))
                 for name in ("real", "imag")]  # fmt: skip
        digests = [writer.write_digest(each, part, seed) for seed, each in enumerate(parts)]
        digest = writer.add(f"add {digests[0]}, {digests[1]} : {_WORD}")
    else:
        digest = writer.write_digest(flat, type_, 0)
    return "\n".join((
        "module @mcjax_digest {",
        f"func.func public @main(%a: {whole}) -> {_WORD} {{",
        *writer.lines,
        f"return {digest} : {_WORD}",
        "}}",
    ))  # fmt: skip


class _Writer:
    """Writer of the operations on flat arrays of a size.

    Attributes:
        lines: the operations.

    """

    def __init__(self, size: int) -> None:
        self.lines: list[str] = []
        self._size = size

    def type(self, element: str) -> str:
        """Return the type of a flat array."""
        return f"tensor<{self._size}x{element}>"

    def add(self, operation: str) -> str:
        """Add an operation; return the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = stablehlo.{operation}")
        return name

    def convert(self, how: str, value: str, from_: str, to: str) -> str:
        """Add an operation that makes another type of a value."""
        return value if from_ == to else self.add(f"{how} {value} : ({from_}) -> {to}")

    def _combine(self, name: str, value: str, constant: int, type_: str) -> str:
        other = self.add(f"constant dense<{constant}> : {type_}")
        return self.add(f"{name} {value}, {other} : {type_}")

    def write_digest(self, value: str, type_: str, seed: int) -> str:
        """Write the digest of a flat array of real numbers."""
        if type_ == "i1":
            value = self.convert("convert", value, self.type(type_), self.type("ui32"))
            return self._sum(value, seed)
        bits = _count_bits(type_)
        whole = self.type(f"ui{bits}")
        value = self.convert("bitcast_convert", value, self.type(type_), whole)
        if type_ in _FLOATS:
            value = self._make_equal(value, bits, *_FLOATS[type_])
        if bits < 32:
            value = self.convert("convert", value, whole, self.type("ui32"))
        if bits <= 32:
            return self._sum(value, seed)
        # The halves of 64 bits one after another, as an array of twice the size.
        pairs = f"tensor<{self._size}x2xui32>"
        value = self.convert("bitcast_convert", value, whole, pairs)
        self._size *= 2
        value = self.convert("reshape", value, pairs, self.type("ui32"))
        digest = self._sum(value, seed)
        self._size //= 2
        return digest

    def _make_equal(self, value: str, bits: int, exponent: int, mantissa: int) -> str:
        """Return the bits of floats with one NaN and one zero."""
        whole, flags = self.type(f"ui{bits}"), self.type("i1")
        infinity = ((1 << exponent) - 1) << mantissa
        magnitude = self._combine("and", value, (1 << (bits - 1)) - 1, whole)
        for how, than, instead in (("GT", infinity, infinity + 1), ("EQ", 0, 0)):
            limit = self.add(f"constant dense<{than}> : {whole}")
            is_one = self.add(
                f"compare {how}, {magnitude}, {limit} : ({whole}, {whole}) -> {flags}"
            )
            other = self.add(f"constant dense<{instead}> : {whole}")
            value = self.add(f"select {is_one}, {other}, {value} : {flags}, {whole}")
        return value

    def _sum(self, value: str, seed: int) -> str:
        """Return the sum of words, each mixed with its place."""
        words = self.type("ui32")
        place = self.add(f"iota dim = 0 : {words}")
        place = self._combine("multiply", place, _PLACE, words)
        value = self.add(f"xor {value}, {place} : {words}")
        if seed:
            value = self._combine("xor", value, seed, words)
        for factor, shift in _MIX:
            value = self._combine("multiply", value, factor, words)
            shifted = self._combine("shift_right_logical", value, shift, words)
            value = self.add(f"xor {value}, {shifted} : {words}")
        zero = self.add(f"constant dense<0> : {_WORD}")
        return self.add(
            f"reduce({value} init: {zero}) applies stablehlo.add across dimensions = [0] "
            f": ({words}, {_WORD}) -> {_WORD}"
        )


def _count_bits(type_: str) -> int:
    """Return the number of bits of an MLIR type, such as f8E4M3FN or i4."""
    digits = ""
    for letter in type_.lstrip("bfui"):
        if not letter.isdigit():
            break
        digits += letter
    return int(digits)
