"""Print the cache keys of several programs, and of one program in several settings, as JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import cache_key, compiler

from mcjax_launch.features.compile_once import hook as key

jax.config.update("jax_num_cpu_devices", 2)
DATA = np.ones((4, 4), np.float32)
SHAPE = jax.ShapeDtypeStruct((4, 4), np.float32)


def key_of(
    function: Callable[..., Any] = lambda x: jnp.sin(x) @ x,
    *,
    device: int = 0,
    level: int = 3,
    count: int = 1,
    kind: str = "cpu",
    own: tuple[tuple[str, str], ...] = (),
) -> str | None:
    """The key of a program."""
    chosen = jax.devices()[device]
    module = jax.jit(function).lower(DATA).compiler_ir()
    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[chosen.id]]))
    options.executable_build_options.debug_options.xla_backend_optimization_level = level
    options.env_option_overrides = list(own)
    device_like = mock.Mock(device_kind=kind, process_index=chosen.process_index)
    return key.make_program_key(chosen.client, module, [device_like] * count, options)


@contextmanager
def environ(**variables: str) -> Iterator[None]:
    with mock.patch.dict(os.environ, variables):
        yield


def another_processor() -> "mock._patch[Any]":
    return mock.patch.object(key, "_get_processor", lambda: ("another",))


def without(name: str) -> "mock._patch[Any]":
    broken = mock.Mock(side_effect=RuntimeError("another jax"))
    return mock.patch.object(cache_key, name, broken)


def call_back(x: jax.Array) -> jax.Array:
    jax.debug.print("{}", x.sum())
    return x


keys = {
    "first": key_of(),
    "again": key_of(lambda x: jnp.sin(x) @ x),
    "other device": key_of(device=1),
    "other code": key_of(lambda x: jnp.cos(x) @ x),
    "other constant": key_of(lambda x: jnp.sin(x) @ x + 1),
    "other options": key_of(level=0),
    "other number of devices": key_of(count=2),
    "other kind of device": key_of(kind="another"),
    "bound by a callback": key_of(lambda x: jax.pure_callback(np.sin, SHAPE, x)),
    "bound by a print": key_of(call_back),
    "bound by a dump of its own": key_of(own=(("xla_dump_to", "/tmp/dumped"),)),
    "other option of its own": key_of(own=(("xla_cpu_enable_fast_math", "true"),)),
}
for name in ("XLA_FLAGS", "NPROC"):
    with environ(**{name: "--xla_cpu_enable_fast_math=true"}):
        keys[f"other {name}"] = key_of()
with environ(XLA_FLAGS="--xla_dump_to=/tmp/dumped"):
    keys["bound by a dump"] = key_of()
with mock.patch.object(sys.modules["jaxlib"], "__version__", "another"):
    keys["other jaxlib"] = key_of()
with another_processor():
    keys["other processor"] = key_of()
for name in ("_hash_computation", "_hash_serialized_compile_options"):
    with without(name):
        keys[f"unknown {name}"] = key_of()
__import__("jax.experimental.serialize_executable")
keys["bound to a file"] = key_of()
json.dump(keys, sys.stdout)
