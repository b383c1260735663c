"""Programs that compute digests of arrays on the device that holds them: of their bits.

A digest is the sum of the array's words of 32 bits, each mixed with its place. The programs are
written as StableHLO and launched without `jit`: no setting of the user's program affects them, and
no hook of JAX sees them. All NaNs count as equal, and so do 0.0 and -0.0: which of them a
collective returns may depend on the order of its operands, which each process has its own.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    #: Shape and MLIR type of an array.
    Spec = tuple[tuple[int, ...], str]

# Bits of the exponent and the mantissa of types with IEEE's infinities.
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
_COMPLEX = "complex<"
# Numbers of murmur3 and of the golden ratio.
_PLACE, _MIX = 0x9E3779B9, ((0x85EBCA6B, 15), (0xC2B2AE35, 13))


def compile_digests(specs: Sequence[Spec], device: Any) -> Any:
    """Return an executable that computes the digests of arrays on a device, as one array.

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
        module = ir.Module.parse(write_digests(specs))
        if not hasattr(client, "compile_and_load"):  # before jax 0.7
            return client.compile(mlir.module_to_bytecode(module), compile_options=options)
        devices = xla_client.DeviceList((device,))
        return client.compile_and_load(module, executable_devices=devices, compile_options=options)


def get_type(dtype: Any) -> str:
    """Return the MLIR type of a dtype."""
    from jax._src.interpreters import mlir

    with mlir.make_ir_context():
        return str(mlir.dtype_to_ir_type(dtype))


def write_digests(specs: Sequence[Spec]) -> str:
    """Return the StableHLO of a program that computes the digests of arrays."""
    writers = [_Writer(number) for number in range(len(specs))]
    digests = [writer.write(*spec) for writer, spec in zip(writers, specs)]
    arguments = ", ".join(f"%a{n}: {_tensor(*spec)}" for n, spec in enumerate(specs))
    lines = [line for writer in writers for line in writer.lines]
    word, all_ = "tensor<1xui32>", f"tensor<{len(specs)}xui32>"
    types = ", ".join([word] * len(specs))
    joined = f"%out = stablehlo.concatenate {', '.join(digests)}, dim = 0 : ({types}) -> {all_}"
    return "\n".join((
        "module @mcjax_digests {",
        f"func.func public @main({arguments}) -> {all_} {{",
        *lines,
        joined,
        f"return %out : {all_}",
        "}}",
    ))  # fmt: skip


def _tensor(shape: Sequence[int], type_: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{type_}>"


class _Writer:
    """Writer of the operations for one array.

    Args:
        number: number of the array.

    Attributes:
        lines: the operations.

    """

    def __init__(self, number: int) -> None:
        self.lines: list[str] = []
        self._number = number

    def write(self, shape: tuple[int, ...], type_: str) -> str:
        """Write the operations; return the name of their result, an array with one word."""
        size = math.prod(shape)
        flat = f"%a{self._number}"
        if shape != (size,):
            flat = self._convert("reshape", flat, _tensor(shape, type_), _tensor((size,), type_))
        if type_.startswith(_COMPLEX):
            part = type_[len(_COMPLEX) : -1]
            types = f"({_tensor((size,), type_)}) -> {_tensor((size,), part)}"
            parts = [self._add(f"stablehlo.{name} {flat} : {types}") for name in ("real", "imag")]
            words = [self._write_words(each, size, part) for each in parts]
        else:
            words = [self._write_words(flat, size, type_)]
        digests = [self._sum(*each, place) for place, each in enumerate(words)]
        digest = digests[0]
        for other in digests[1:]:
            digest = self._add(f"stablehlo.add {digest}, {other} : tensor<ui32>")
        return self._convert("reshape", digest, "tensor<ui32>", "tensor<1xui32>")

    def _add(self, operation: str) -> str:
        name = f"%v{self._number}_{len(self.lines)}"
        self.lines.append(f"{name} = {operation}")
        return name

    def _convert(self, how: str, value: str, from_: str, to: str) -> str:
        return self._add(f"stablehlo.{how} {value} : ({from_}) -> {to}")

    def _combine(self, name: str, value: str, constant: int, type_: str) -> str:
        other = self._add(f"stablehlo.constant dense<{constant}> : {type_}")
        return self._add(f"stablehlo.{name} {value}, {other} : {type_}")

    def _write_words(self, value: str, size: int, type_: str) -> tuple[str, int]:
        """Return the words of 32 bits of an array, and their number."""
        words = f"tensor<{size}xui32>"
        if type_ in ("i1", "ui32"):
            if type_ == "i1":
                value = self._convert("convert", value, f"tensor<{size}xi1>", words)
            return value, size
        bits = _count_bits(type_)
        whole = f"tensor<{size}xui{bits}>"
        if type_ != f"ui{bits}":
            value = self._convert("bitcast_convert", value, _tensor((size,), type_), whole)
        if type_ in _FLOATS:
            value = self._make_equal(value, size, bits, *_FLOATS[type_])
        if bits < 32:
            return self._convert("convert", value, whole, words), size
        if bits == 64:
            pairs = f"tensor<{size}x2xui32>"
            value = self._convert("bitcast_convert", value, whole, pairs)
            return self._convert("reshape", value, pairs, f"tensor<{2 * size}xui32>"), 2 * size
        return value, size

    def _make_equal(self, value: str, size: int, bits: int, exponent: int, mantissa: int) -> str:
        """Return the bits of floats with one NaN and one zero."""
        whole, flags = f"tensor<{size}xui{bits}>", f"tensor<{size}xi1>"
        infinity = ((1 << exponent) - 1) << mantissa
        magnitude = self._combine("and", value, (1 << (bits - 1)) - 1, whole)
        for how, than, instead in (("GT", infinity, infinity + 1), ("EQ", 0, 0)):
            limit = self._add(f"stablehlo.constant dense<{than}> : {whole}")
            is_one = self._add(
                f"stablehlo.compare {how}, {magnitude}, {limit} : ({whole}, {whole}) -> {flags}"
            )
            other = self._add(f"stablehlo.constant dense<{instead}> : {whole}")
            value = self._add(f"stablehlo.select {is_one}, {other}, {value} : {flags}, {whole}")
        return value

    def _sum(self, value: str, size: int, seed: int) -> str:
        """Return the sum of words, each mixed with its place."""
        words = f"tensor<{size}xui32>"
        place = self._add(f"stablehlo.iota dim = 0 : {words}")
        place = self._combine("multiply", place, _PLACE, words)
        value = self._add(f"stablehlo.xor {value}, {place} : {words}")
        if seed:
            value = self._combine("xor", value, seed, words)
        for factor, shift in _MIX:
            value = self._combine("multiply", value, factor, words)
            shifted = self._combine("shift_right_logical", value, shift, words)
            value = self._add(f"stablehlo.xor {value}, {shifted} : {words}")
        zero = self._add("stablehlo.constant dense<0> : tensor<ui32>")
        return self._add(
            f"stablehlo.reduce({value} init: {zero}) applies stablehlo.add across dimensions = [0] "
            f": ({words}, tensor<ui32>) -> tensor<ui32>"
        )


def _count_bits(type_: str) -> int:
    """Return the number of bits of an MLIR type, such as f8E4M3FN or i4."""
    digits = ""
    for letter in type_.lstrip("bfui"):
        if not letter.isdigit():
            break
        digits += letter
    return int(digits)
