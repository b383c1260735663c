"""What a compiled program depends on, as a key: equal keys mean that one can stand for the other.

JAX's own key differs between the processes of a CPU job: it contains their topology, with the
number of the process. Here stand the properties of the processor instead.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache

from ....kernel.wire import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What a program's code names if it calls back into the process that has compiled it, by a pointer.
# It is one string of MLIR's bytecode; a function of the user's of such a name is not shared either.
_BOUND = (b"callback", b"CustomSPMDPartitioning", b"InspectSharding", b"custom_partition")
# Variables that decide how XLA compiles, or how many threads it compiles for.
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "PJRT_NPROC")
# Who reads what this module writes is not told on which devices a program is to run.
_SERIALIZING = "jax.experimental.serialize_executable"


class UnknownJax(Exception):
    """A JAX that lacks what is needed to tell programs apart."""


def program_key(backend: Any, module: Any, devices: Sequence[Any], options: Any) -> str | None:
    """Return the key of a program; None if it is bound to this process.

    Args:
        backend: that compiles it.
        module: its code, in MLIR.
        devices: on which it runs.
        options: JAX's for its compilation.

    Raises:
        UnknownJax: a key cannot be made.

    """
    if "xla_dump" in os.environ.get("XLA_FLAGS", ""):  # the user wants what each rank compiles
        return None
    try:
        from jax._src import cache_key

        code, digest = _Recorder(), hashlib.sha256()
        cache_key._hash_computation(code, module, False)
        if any(word in code.text for word in _BOUND):
            return None
        digest.update(code.text)
        runs_here = is_local(backend, devices)
        runs_anywhere = runs_here and not may_serialize()
        cache_key._hash_serialized_compile_options(
            digest, options, strip_device_assignment=runs_anywhere
        )
        facts = (
            *(backend.platform, backend.platform_version, sys.modules["jaxlib"].__version__),
            *(len(devices), backend.local_device_count(), runs_here, runs_anywhere),
            *sorted({str(device.device_kind) for device in devices}),
            *(os.environ.get(name) for name in _VARIABLES),
            *sorted(word for word in sys.argv if word.startswith("--xla")),
            getattr(cache_key, "custom_hook", str)(),
            *_processor(),
        )
    except Exception as error:
        raise UnknownJax(str(error)) from None
    digest.update(repr(facts).encode())
    return digest.hexdigest()


def is_local(backend: Any, devices: Sequence[Any]) -> bool:
    """Return whether a program runs on devices of this process alone."""
    own = backend.process_index()
    return all(device.process_index == own for device in devices)


def may_serialize() -> bool:
    """Return whether the program may serialise executables by `_SERIALIZING`."""
    return _SERIALIZING in sys.modules


@lru_cache(None)
def _processor() -> tuple[str, ...]:
    return system.processor()


class _Recorder:
    """Takes what JAX adds to a hash."""

    text = b""

    def update(self, text: bytes) -> None:
        self.text += text
