"""Call jitted functions in many ways, on rank 0 also alone: all records must be equal."""

import functools
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize()
first = jax.process_index() == 0
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("all",)), PartitionSpec("all"))


def spread(rows: int) -> jax.Array:
    values = np.arange(rows * jax.device_count(), dtype="f")
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


@functools.partial(jax.jit, static_argnums=1)
def power(x: jax.Array, n: int) -> jax.Array:
    return (x**n).mean()


@jax.jit
def of_tree(tree: dict[str, jax.Array], scale: float) -> jax.Array:
    return sum(value.sum() for value in tree.values()) * scale


class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(x)


def call(function: Callable[..., object], *args: object) -> object:
    """Call what is given, as generic code does."""
    return function(*args)


def alone(number: int) -> None:
    """Run what rank 0 runs for its log."""
    for _ in range(40):
        call(len, "")
    call(power, jnp.ones(number + 1), 2)
    of_tree({"a": jnp.ones(3)}, 1.0)
    float(jnp.sum(jnp.ones(number + 1)))
    if number == 4:
        jax.clear_caches()


model, compiled = Model(), None
for number in range(9):
    x = spread(2 if number % 4 == 3 else 1)
    call(power, x, 2)
    functools.partial(power, x)(n=2)
    power(x, 3)
    of_tree({"a": x, "b": x}, 2.0)
    call(model, x)
    jax.grad(lambda z: power(z, 2))(x)
    jax.jit(lambda z: z + 1)(x)
    jnp.sum(x)
    if number % 4 != 3:
        compiled = compiled or jax.jit(lambda z: z * 3).lower(x).compile()
        compiled(x)
    thread = threading.Thread(target=model, args=(x,))
    thread.start()
    thread.join()
    if first:
        alone(number)
print("end")
