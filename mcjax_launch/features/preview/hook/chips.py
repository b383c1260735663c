"""Compilation for TPU chips that this machine need not have, by libtpu."""

from __future__ import annotations

import os
import re

from ..messages import PreviewedProgram
from .collectives import find_collectives
from .compiled import make_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .compiled import Code

# GiB of a device, by the type in a topology's name; of v2 and v3 a chip is two devices.
_MEMORY_GIB = {"v2": 8, "v3": 16, "v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "v7x": 96}
# libtpu's words, for temporaries alone and for all that it needs.
_TEMPORARIES = re.compile(
    r"required for HLO temporaries \(([\d.]+)([KMG])\) exceeds available HBM \(([\d.]+)([KMG])\)"
)
_USED = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
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
        import sys

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

        why, found = "", None
        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
        except Exception as error:
            why = str(error).partition("\n")[0]
        if found is None:
            raise SystemExit(f"--on {topology}: {why}")
        self._devices = list(found.devices)
        self._memory = _MEMORY_GIB.get(topology.partition(":")[0], 0) << 30

    def compile(
        self, code: Code, told: PreviewedProgram, sizes: Sequence[int], shardings: tuple[Any, Any]
    ) -> PreviewedProgram:
        """Compile a program for the chips; return its message with what is different there.

        Args:
            code: the program.
            told: the message on the program as it was compiled for CPU devices.
            sizes: number of ranks on each host.
            shardings: shardings of its arguments, and of its outputs.

        """
        try:
            made = self._compile(code)
        except Exception as error:
            return self._explain(told, str(error))
        stats = made.get_compiled_memory_stats()
        given, results = shardings
        text = "\n".join(module.to_string() for module in made.hlo_modules())
        layout = make_layout(code.devices, sizes, (*given, *results))
        return told.copy_with(
            arguments=stats.argument_size_in_bytes,
            outputs=stats.output_size_in_bytes - stats.alias_size_in_bytes,
            temporaries=stats.temp_size_in_bytes,
            collectives=find_collectives(text, layout),
            memory=self._memory,
        )

    def _compile(self, code: Code) -> Any:
        import numpy as np
        from jax._src import compiler
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jax._src.lib.mlir import ir

        every = sorted(device.id for device in code.devices[0].client.devices())
        places = {number: place for place, number in enumerate(every)}
        devices = [self._devices[places[device.id]] for device in code.devices]
        options = xla_client.CompileOptions.ParseFromString(code.options.SerializeAsString())
        ids = np.array([[device.id for device in devices]])
        options.device_assignment = xla_client.DeviceAssignment.create(ids)
        with mlir.make_ir_context():
            return compiler.backend_compile_and_load(
                devices[0].client,
                ir.Module.parse(code.bytecode),
                xla_client.DeviceList(tuple(devices)),
                options,
                [],
            )

    def _explain(self, told: PreviewedProgram, error: str) -> PreviewedProgram:
        """Return the message on a program that could not be compiled for the chips."""
        temporaries, used = _TEMPORARIES.search(error), _USED.search(error)
        found = temporaries or used
        if found is None:
            return told.copy_with(refused=error.partition("\n")[0][:_MOST_REASON])
        needed, memory = (int(float(found[n]) * _UNITS[found[n + 1]]) for n in (1, 3))
        if temporaries is None:
            needed = max(0, needed - told.arguments - told.outputs)
        return told.copy_with(temporaries=needed, memory=memory)
