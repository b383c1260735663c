"""Keys of compiled programs: programs with equal keys can replace each other.

JAX's own key differs between the processes of a CPU job, because it contains their topology with
the process's number. These keys contain the processor's properties instead.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache

from ....machine import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Names in the code of a program that calls back by a pointer into the process that has compiled it.
# They are found anywhere in MLIR's bytecode, so a user's function of such a name is not shared.
_BOUND = (b"callback", b"CustomSPMDPartitioning", b"InspectSharding", b"custom_partition")
# Variables that affect how XLA compiles, or for how many threads.
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "PJRT_NPROC")
# Parts of the names of XLA's options that make a compilation write files.
_WRITING = ("dump", "cache_dir", "cache_file", "profile")
# Executables that this module writes are read without being told the devices to run on.
_SERIALIZING = "jax.experimental.serialize_executable"


class UnknownJax(Exception):
    """Error: this version of JAX lacks an internal function that keys need."""


def make_program_key(backend: Any, module: Any, devices: Sequence[Any], options: Any) -> str | None:
    """Return the key of a program; None if it can only run in this process.

    Args:
        backend: the backend that compiles it.
        module: its code, in MLIR.
        devices: the devices on which it runs.
        options: JAX's options for its compilation.

    Raises:
        UnknownJax: a key cannot be made.

    """
    if _writes(options):
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
            *_get_processor(),
        )
    except Exception as error:
        raise UnknownJax(str(error)) from None
    digest.update(repr(facts).encode())
    return digest.hexdigest()


def _writes(options: Any) -> bool:
    """Return whether a compilation writes files besides, as the user wants of each rank.

    Options of XLA come from a variable, or with a program (`compiler_options` of `jax.jit`).
    """
    names = (str(name) for name, *_ in getattr(options, "env_option_overrides", ()))
    given = (*names, *(os.environ.get(variable, "") for variable in _VARIABLES[:2]))
    return any(word in text for text in given for word in _WRITING)


def is_local(backend: Any, devices: Sequence[Any]) -> bool:
    """Return whether a program runs only on devices of this process."""
    own = backend.process_index()
    return all(device.process_index == own for device in devices)


def may_serialize() -> bool:
    """Return whether the program may serialise executables with `_SERIALIZING`."""
    return _SERIALIZING in sys.modules


@lru_cache(None)
def _get_processor() -> tuple[str, ...]:
    return system.identify_processor()


class _Recorder:
    """Hash-like object that keeps what JAX adds to it."""

    text = b""

    def update(self, text: bytes) -> None:
        self.text += text
