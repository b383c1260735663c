"""Private names of JAX that the hook uses, and the loss if a version of JAX lacks a name.

Each use is guarded: with an unknown version of JAX a rank runs on, and silently loses what is
listed here. So `--check` looks for all of them, and so does a test for each.
"""

from __future__ import annotations

import sys

from ..wire.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Internal(Value):
    """Private name in JAX.

    Args:
        module: the module that has it; JAXLIB for jaxlib's extension.
        name: name in that module, with dots; `function(argument)` for a C++ function's argument;
            `new|old` for a name that newer versions have in place of another one.
        lost: description of what is lost without the name: a sentence without its full stop.

    """

    module: str
    name: str
    lost: str

    def __str__(self) -> str:
        """Return the name with its module, as MODULE.NAME."""
        return f"{self.module}.{self.name}"


JAXLIB = "jaxlib"
_PROGRAMS = "different programs on different ranks go unnoticed, also with --verify-spmd"
_VALUES = "--verify-spmd does not compare the values of replicated arrays"
_DEVICES = "ranks that use other devices than the rest are not named"
_REASON = "the reason why JAX uses no GPU is not shown"
_NUMBERS = "on TPUs messages use JAX's own numbers for ranks"
_BARRIER = "notes on a hang do not name what a rank waits for"
_SHUTDOWN = "a rank that ends five minutes before another rank ends the job with an error"
_GLOO = "collectives on CPU listen at the address of the host's name, which may be unreachable"
_SLICES = "on CPU JAX treats each machine as a slice, and --slices has no effect"
_GPUS = "a program that never calls initialize() uses all GPUs of its host"
_FRAMES = "tracebacks show the launcher's own frames"
_PRELOAD = "a rank may be forked although an import has started a backend"
_BREAKPOINT = "jax.debug.breakpoint() does not work in ranks"
_COMPILE_ONCE = "each rank compiles every program for itself"
_EXIT = "a rank that fails loses what it has not flushed to files"
_PARTIAL = "in a call of some ranks, a program that needs the others waits for them"
_PREVIEW = "--preview does not work"
_ADDRESS = "a program that asks JAX for the coordinator's address gets a socket's path"

_BRIDGE, _DISTRIBUTED = "jax._src.xla_bridge", "jax._src.distributed"
_EXECUTION = "jax._src.interpreters.pxla"
INTERNALS = (
    Internal("jax._src.compiler", "compile_or_get_cached", _PROGRAMS),
    Internal("jax._src.compiler", "backend_compile_and_load", _COMPILE_ONCE),
    Internal("jax._src.compiler", "_cache_read", _COMPILE_ONCE),
    Internal("jax._src.compiler", "_cache_write", _COMPILE_ONCE),
    *(
        Internal("jax._src.compilation_cache", name, _COMPILE_ONCE)
        for name in (
            "is_cache_used",
            "get_cache_key",
            "_get_cache",
            "compress_executable",
            "decompress_executable",
            "combine_executable_and_time",
            "extract_executable_and_time",
        )
    ),
    Internal("jax._src.lru_cache", "LRUCache", _COMPILE_ONCE),
    Internal("jax._src.cache_key", "_hash_computation", _COMPILE_ONCE),
    Internal("jax._src.cache_key", "_hash_serialized_compile_options", _COMPILE_ONCE),
    Internal("jax._src.config", "compilation_cache_dir.value", _COMPILE_ONCE),
    Internal(JAXLIB, "Client.serialize_executable", _COMPILE_ONCE),
    Internal(JAXLIB, "Client.deserialize_executable", _COMPILE_ONCE),
    Internal(JAXLIB, "LoadedExecutable.fingerprint", _COMPILE_ONCE),
    Internal(_EXECUTION, "ExecuteReplicated.__call__", _PROGRAMS),
    Internal(_EXECUTION, "ExecuteReplicated.xla_executable", _PROGRAMS),
    Internal(_EXECUTION, "ExecuteReplicated.kept_var_idx", _PARTIAL),
    Internal(_EXECUTION, "ExecuteReplicated.out_handler", _PARTIAL),
    Internal(_EXECUTION, "ExecuteReplicated.in_handler", _PREVIEW),
    Internal(_EXECUTION, "ExecuteReplicated.mut", _PREVIEW),
    Internal("jax._src.lib.mlir", "ir.SymbolTable", _PREVIEW),
    Internal("jax._src.core", "physical_aval", _PREVIEW),
    Internal("jax._src.sharding_impls", "physical_sharding", _PREVIEW),
    Internal(JAXLIB, "DistributedRuntimeClient.key_value_set_bytes", _PREVIEW),
    Internal(_EXECUTION, "MeshExecutableFastpathData", _PROGRAMS),
    Internal("jax._src.api", "_post_hook_state|jax_jit.global_state", _PROGRAMS),
    Internal(JAXLIB, "LoadedExecutable.hlo_modules", _PROGRAMS),
    Internal("jax._src.array", "ArrayImpl", _PROGRAMS),
    Internal("jax._src.array", "ArrayImpl._arrays", _VALUES),
    Internal("jax._src.compiler", "get_compile_options", _VALUES),
    Internal("jax._src.interpreters.mlir", "make_ir_context", _VALUES),
    Internal("jax._src.interpreters.mlir", "dtype_to_ir_type", _VALUES),
    Internal(JAXLIB, "LoadedExecutable.execute_sharded", _VALUES),
    Internal("jax._src.source_info_util", "register_exclusion", _PROGRAMS),
    Internal(_BRIDGE, "backends", _DEVICES),
    Internal(_BRIDGE, "_default_backend", _DEVICES),
    Internal(_BRIDGE, "_init_backend", _NUMBERS),
    Internal(_BRIDGE, "_backend_errors", _REASON),
    Internal(_BRIDGE, "hardware_utils.has_visible_nvidia_gpu", _REASON),
    Internal(_BRIDGE, "_backends", _PRELOAD),
    Internal("jax._src.config", "config.values", _GPUS),
    Internal("jax._src.config", "config_ext.Config", _PARTIAL),
    Internal(_DISTRIBUTED, "global_state.client", _SLICES),
    Internal("jax._src.api", "clean_up", _EXIT),
    Internal(_DISTRIBUTED, "global_state.shutdown", _EXIT),
    Internal(_DISTRIBUTED, "global_state.service", _EXIT),
    Internal(JAXLIB, "Device.__getattr__", _SLICES),
    Internal(_DISTRIBUTED, "global_state.coordinator_address", _ADDRESS),
    Internal(JAXLIB, "get_distributed_runtime_client(shutdown_timeout)", _SHUTDOWN),
    Internal(JAXLIB, "get_distributed_runtime_service(shutdown_timeout)", _SHUTDOWN),
    Internal(JAXLIB, "make_gloo_tcp_collectives(hostname)", _GLOO),
    Internal(JAXLIB, "DistributedRuntimeClient.wait_at_barrier", _BARRIER),
    Internal(JAXLIB, "DistributedRuntimeClient.blocking_key_value_get", _BARRIER),
    Internal(JAXLIB, "DistributedRuntimeClient.blocking_key_value_get_bytes", _BARRIER),
    Internal("jax._src.traceback_util", "register_exclusion", _FRAMES),
    Internal("jax._src.traceback_util", "_exclude_paths", _FRAMES),
    Internal("jax._src.debugger.cli_debugger", "CliDebugger.run", _BREAKPOINT),
)


def get_extension() -> Any:
    """Return jaxlib's extension, as JAX's module for distributed programs holds it.

    Returns:
        None if that module is not imported.

    """
    distributed = sys.modules.get(_DISTRIBUTED)
    return getattr(distributed, "_jax", None) or getattr(distributed, "xla_extension", None)


def find_missing() -> list[Internal]:
    """Return the names that this JAX lacks; imports their modules, so never call it in a rank."""
    return [internal for internal in INTERNALS if not is_found(internal)]


def is_found(internal: Internal) -> bool:
    """Return whether this JAX has a private name."""
    return any(_has(internal.module, name) for name in internal.name.split("|"))


def _has(module: str, name: str) -> bool:
    import importlib
    import inspect

    path, _, argument = name.rstrip(")").partition("(")
    try:
        importlib.import_module(_DISTRIBUTED)
        own = module == JAXLIB
        found: Any = get_extension() if own else importlib.import_module(module)
        for part in path.split("."):
            if part not in dir(found):  # with hasattr(), each class would have a __call__
                return False
            found = getattr(found, part)
    except Exception:
        return False
    return argument in (getattr(inspect.unwrap(found), "__doc__", "") or "")
