"""Compilation for TPU chips that this machine need not have, by libtpu."""

from __future__ import annotations

import os
import re
import sys

from . import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..messages import PreviewedProgram

# GiB of a device, by the type in a topology's name; of v2 and v3 a chip is two devices.
_MEMORY_GIB = {"v2": 8, "v3": 16, "v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "v7x": 96}
# libtpu's words, for temporaries alone or for all that it needs.
_TOO_LARGE = re.compile(
    r"(HLO temporaries|Used) \(?([\d.]+)([KMG])\)? (?:exceeds available HBM|of) \(?([\d.]+)([KMG])"
)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_REASON = 200


class Chips:
    """Compiler for a TPU slice.

    Args:
        topology: type and shape, such as `v5e:8x8`.

    Raises:
        SystemExit: libtpu is not installed, or does not know the topology.

    """

    def __init__(self, topology: str) -> None:
        import importlib.util

        if importlib.util.find_spec("libtpu") is None:
            raise SystemExit(
                f"--on {topology}: this needs libtpu: {sys.executable} -m pip install libtpu"
            )
        # libtpu would look for chips, ask a server for their names, and warn that it finds none.
        for name, value in (
            ("TPU_ACCELERATOR_TYPE", "v5litepod-16"),  # any: the topology is named below
            ("TPU_SKIP_MDS_QUERY", "1"),
            ("TPU_WORKER_HOSTNAMES", "localhost"),
            ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
        ):
            os.environ.setdefault(name, value)
        from jax.experimental import topologies

        why, found = "", None  # raised below, an error is not one "while handling" another
        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
        except Exception as error:
            why = str(error).partition("\n")[0]
        if found is None:
            raise SystemExit(f"--on {topology}: {why}")
        self._devices = list(found.devices)
        self._memory = _MEMORY_GIB.get(topology.partition(":")[0], 0) << 30

    def describe(self, program: compiled.UnrunProgram, sizes: Sequence[int]) -> PreviewedProgram:
        """Compile a program for the chips; return the message that describes it.

        Args:
            program: the program, compiled for CPU devices.
            sizes: number of ranks on each host.

        """
        try:
            made = self._compile(program)
        except Exception as error:
            return explain(compiled.describe(program, sizes), str(error))
        return compiled.describe(program, sizes, made).copy_with(memory=self._memory)

    def _compile(self, program: compiled.UnrunProgram) -> Any:
        import numpy as np
        from jax._src import compiler
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jax._src.lib.mlir import ir

        every = sorted(device.id for device in program.devices[0].client.devices())
        devices = [self._devices[every.index(device.id)] for device in program.devices]
        options = xla_client.CompileOptions.ParseFromString(program.options.SerializeAsString())
        ids = np.array([[device.id for device in devices]])
        options.device_assignment = xla_client.DeviceAssignment.create(ids)
        with mlir.make_ir_context():
            return compiler.backend_compile_and_load(
                devices[0].client,
                ir.Module.parse(program.bytecode),
                xla_client.DeviceList(tuple(devices)),
                options,
                [],
            )


def explain(told: PreviewedProgram, error: str) -> PreviewedProgram:
    """Return the message on a program that could not be compiled for the chips.

    Args:
        told: the message on the program, compiled for CPU devices.
        error: what libtpu says.

    """
    found = _TOO_LARGE.search(error)
    if found is None:
        return told.copy_with(refused=error.partition("\n")[0][:_MOST_REASON])
    needed, memory = (int(float(found[n]) * _UNITS[found[n + 1]]) for n in (2, 4))
    if found[1] == "Used":
        needed = max(0, needed - told.arguments - told.outputs)
    return told.copy_with(temporaries=needed, memory=memory)
