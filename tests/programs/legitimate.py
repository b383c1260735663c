"""Run correct programs in which ranks do different things: none may be blamed.

Each case is followed by a program of all ranks that is the same on all, and new. argv names cases;
all of them without one.
"""

import sys
import threading
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

try:
    from jax import set_mesh, shard_map
except ImportError:  # an older jax
    from jax.experimental.shard_map import shard_map
    from jax.sharding import use_mesh as set_mesh

jax.distributed.initialize()
me, processes = jax.process_index(), jax.process_count()
local = jax.local_device_count()
first, odd = me == 0, me % 2 == 1
devices = np.array(jax.devices())
mesh = Mesh(devices, ("all",))
grid = Mesh(devices.reshape(processes, local), ("host", "local"))
whole, parts = NamedSharding(mesh, P()), NamedSharding(mesh, P("all"))
rng = np.random.default_rng(0)


def everywhere(value: np.ndarray, sharding: NamedSharding = whole) -> jax.Array:
    return jax.make_array_from_callback(
        value.shape, sharding, lambda index: value[index], dtype=value.dtype
    )


general = rng.normal(size=(4, 4)).astype(np.float32)
square = everywhere(general)
positive = everywhere(general @ general.T + 4 * np.eye(4, dtype=np.float32))
lower = everywhere(np.tril(general) + 4 * np.eye(4, dtype=np.float32))
vector = everywhere(np.arange(4, dtype=np.float32))
scalar = everywhere(np.float32(3).reshape(()))
key = everywhere(np.array([0, 7], dtype=np.uint32))
spread = everywhere(rng.normal(size=(2 * mesh.size, 4)).astype(np.float32), parts)

CASES: dict[str, Callable[[], object]] = {}


def alone(name: str, function: Callable[..., object], *args: object) -> None:
    """Rank 0 runs this, alone."""
    CASES[name] = lambda: jax.block_until_ready(function(*args)) if first else None


def alone_compiled(name: str, function: Callable[..., object], *args: object) -> None:
    """Rank 0 runs this as one program, alone."""
    alone(name, jax.jit(function), *args)


LINEAR = ("det", "slogdet", "eigh", "svd", "qr", "inv", "norm", "cholesky", "pinv", "eigvalsh")
for name in LINEAR:
    alone(name, getattr(jnp.linalg, name), positive)
alone("solve", jnp.linalg.solve, square, vector)
alone("lstsq", jnp.linalg.lstsq, square, vector)
alone("matrix_power", partial(jnp.linalg.matrix_power, n=3), square)
alone("expm", jax.scipy.linalg.expm, square)
alone("solve_triangular", partial(jax.scipy.linalg.solve_triangular, lower=True), lower, vector)
alone_compiled("lu", jax.scipy.linalg.lu, square)
alone_compiled("schur", jax.scipy.linalg.schur, square)
alone_compiled("cho_solve", lambda a, b: jax.scipy.linalg.cho_solve((a, True), b), lower, vector)
alone_compiled("matmul", jnp.matmul, square, square)
alone("prod", jnp.prod, vector)
alone("product", lambda a: a * 100, scalar)
alone("product with a number of NumPy's", lambda a: a * np.float32(2), square)
alone("einsum", partial(jnp.einsum, "ij,jk->ik"), square, square)
alone("sort", jnp.sort, square)
alone("argsort", jnp.argsort, square)
alone("top_k", lambda a: jax.lax.top_k(a, 2), square)
alone("fft", jnp.fft.fft, vector)
alone("cumsum", jnp.cumsum, square)
alone_compiled("random", lambda a: jax.random.normal(a, (4,)), key)
alone("split", jax.random.split, key)
alone("permutation", lambda a: jax.random.permutation(a, 8), key)
alone("index", lambda a: a[1], square)
alone("slice", lambda a: a[1:3, ::2], square)
alone("gather", lambda a: a[jnp.array([0, 2])], square)
alone("update", lambda a: a.at[0].set(7), square)
alone_compiled("where", lambda a: jnp.where(a > 0, a, 0), square)
alone_compiled("unique", partial(jnp.unique, size=4), square)
alone_compiled("grad", jax.grad(lambda a: (a**2).sum()), square)
alone_compiled("hessian", jax.hessian(lambda a: (a**3).sum()), vector)
alone_compiled("vmap", jax.vmap(lambda a: a @ a), square)
alone_compiled("scan", lambda a: jax.lax.scan(lambda c, x: (c + x, c), a[0], a), square)
alone_compiled("while", lambda a: jax.lax.while_loop(lambda c: c < 9, lambda c: c + 1, a), scalar)
alone_compiled("cond", lambda a: jax.lax.cond(a > 0, jnp.sin, jnp.cos, a), scalar)
alone_compiled("convolution", lambda a: jnp.convolve(a, a), vector)
alone("astype", lambda a: a.astype(jnp.bfloat16), square)
alone_compiled("concatenate", lambda a: jnp.concatenate([a, a]), square)
alone_compiled("softmax", jax.nn.softmax, square)
alone("logsumexp", jax.nn.logsumexp, square)
alone_compiled("mean and std", lambda a: (a.mean(), a.std()), square)
alone_compiled("histogram", lambda a: jnp.histogram(a, bins=4), square)
alone("bessel", jax.scipy.special.i0, vector)
alone("roll", lambda a: jnp.roll(a, 1), square)
alone_compiled("debug.print", lambda a: jax.debug.print("{}", a), scalar)
alone_compiled("pure_callback", lambda a: jax.pure_callback(np.sin, a, a), vector)
alone_compiled("checkpoint", jax.checkpoint(lambda a: jnp.sin(a) * a), square)
alone_compiled("constraint", lambda a: jax.lax.with_sharding_constraint(a * 2, whole), square)


def case(function: Callable[[], object]) -> Callable[[], object]:
    CASES[function.__name__.replace("_", " ")] = function
    return function


@case
def each_prints_in_its_own_way() -> None:
    print(f"{me}: {scalar * (me + 2)} {vector[me % 4]} {(square + me).sum()}")


@case
def shard_map_of_whole_arrays() -> None:
    if first:
        whole_map = shard_map(lambda a: a + 1, mesh=mesh, in_specs=P(), out_specs=P())
        jax.jit(whole_map)(square)


@case
def parts_that_each_process_has_all_of() -> None:
    """Divided among the devices of a process, the same in all processes."""
    within = everywhere(np.ones((local, 3), np.float32), NamedSharding(grid, P("local")))
    if first:
        print((within * 2).addressable_shards[0].data.shape, jax.jit(jnp.sum)(within))


@case
def axis_index_of_whole_arrays() -> None:
    if first:
        name = shard_map(
            lambda a: a + 0 * jax.lax.axis_index("local"),
            mesh=grid,
            in_specs=P("local"),
            out_specs=P("local"),
        )
        jax.jit(name)(everywhere(np.ones((local,), np.float32), NamedSharding(grid, P("local"))))


@case
def a_mesh_that_is_set() -> None:
    if first:
        with set_mesh(mesh):
            print(scalar * 100)


@case
def pmap_with_own_seeds() -> None:
    """No collective, and a constant of each process's own."""
    seed = np.float32(me + 0.5)
    print(jax.pmap(lambda a: a * seed)(np.ones((local, 3), np.float32))[0, 0])


@case
def pmap_with_an_axis_of_rank_0_alone() -> None:
    if first:
        jax.pmap(lambda a: a + 1, axis_name="batch")(np.ones((local, 2), np.float32))


@case
def pmap_with_other_code() -> None:
    own = (jnp.sin, jnp.cos)[me % 2]
    jax.pmap(own, axis_name="batch")(np.ones((local, 4), np.float32))


@case
def pmap_with_a_collective() -> None:
    mean = jax.pmap(lambda a: jax.lax.pmean(a, "i"), axis_name="i")
    mean(np.ones((local, 2), np.float32))


@case
def inner_functions_named_by_rank() -> None:
    def inner(a: jax.Array) -> jax.Array:
        return jnp.tanh(a).sum()

    inner.__name__ = f"of_rank_{me}"
    jax.jit(lambda a: jax.jit(inner)(a) + 1)(spread)


@case
def functions_named_by_rank() -> None:
    def outer(a: jax.Array) -> jax.Array:
        return jnp.exp(a).sum()

    outer.__name__ = f"step_{me}"
    jax.jit(outer)(spread)


@case
def results_named_by_rank() -> None:
    jax.jit(lambda a: {f"loss of {me}": a.max()})(spread)


@case
def arguments_named_by_rank() -> None:
    jax.jit(lambda d: next(iter(d.values())).min())({f"batch of {me}": spread})


@case
def lines_that_differ_by_rank() -> None:
    if odd:
        jax.jit(lambda a: (a * 3).sum())(spread)
    else:
        jax.jit(lambda a: (a * 3).sum())(spread)


@case
def callbacks_at_other_addresses() -> None:
    ballast = [object() for _ in range(1000 * me)]
    if odd:  # other numbers, too
        jax.jit(lambda a: jax.debug.callback(lambda _: None, a))(1.0)

    @jax.jit
    def loud(a: jax.Array) -> jax.Array:
        jax.debug.callback(lambda _: len(ballast), a)
        return a.sum()

    loud(spread).block_until_ready()


@case
def meshes_of_their_own_in_threads() -> None:
    """Each thread has a device of every process; the order of the threads is nobody's affair."""
    done = []

    def work(number: int) -> None:
        own = Mesh(devices.reshape(processes, local)[:, number], ("x",))
        value = everywhere(np.ones((processes, 2), np.float32), NamedSharding(own, P("x")))
        for step in range(5):
            jax.jit(lambda a, s=step: (a + s).sum())(value).block_until_ready()
        done.append(number)

    order = list(range(local))
    threads = [threading.Thread(target=work, args=(n,)) for n in (order[::-1] if odd else order)]
    for thread in threads:
        thread.start()
        if not me % 3:  # one after the other on some
            thread.join(1)
    for thread in threads:
        thread.join()
    assert len(done) == local


@case
def meshes_of_some_ranks() -> None:
    """Stages of a pipeline: each has programs of its own, and another number of them."""
    half = processes // 2
    stage = me // half if half else 0
    rows = devices.reshape(processes, local)[stage * half : (stage + 1) * half or None]
    own = Mesh(rows, ("x", "y"))
    value = everywhere(np.ones((8, 8), np.float32), NamedSharding(own, P("x", "y")))
    for step in range(2 + 3 * stage):
        value = jax.jit(lambda a, s=step: a + a.sum() * s + stage)(value)
    value.block_until_ready()


@case
def compiled_by_one_alone() -> None:
    def cost(a: jax.Array) -> jax.Array:
        return (a * 7).sum()

    if first:
        print(jax.jit(cost).lower(spread).compile().cost_analysis() is not None)
    jax.jit(cost)(spread)


@case
def compiled_ahead_in_another_order() -> None:
    functions = [lambda a: (a * 11).sum(), lambda a: (a * 13).sum()]
    compiled = {
        n: jax.jit(functions[n]).lower(spread).compile() for n in ((1, 0) if odd else (0, 1))
    }
    for n in (0, 1):
        compiled[n](spread)


@case
def caches_that_one_clears() -> None:
    if odd:
        jax.clear_caches()
    jax.jit(lambda a: (a * 17).sum())(spread)


@case
def programs_of_one_process() -> None:
    for number in range(me + 1):
        jax.jit(lambda a, n=number: a * n)(jnp.arange(4.0)).block_until_ready()


@case
def a_program_of_others_devices() -> None:
    other = Mesh(devices.reshape(processes, local)[-1], ("x",))
    if me != processes - 1 and not hasattr(jax, "shard_map"):
        return  # an older jax makes no arrays that are all on others' devices
    value = everywhere(np.ones((local,), np.float32), NamedSharding(other, P("x")))
    if me == processes - 1:
        (value * 2).block_until_ready()


@case
def donated() -> None:
    value = everywhere(np.ones((mesh.size, 2), np.float32), parts)
    jax.jit(lambda a: a + a.sum(), donate_argnums=0)(value).block_until_ready()


@case
def device_put_of_rank_0() -> None:
    if first:
        jax.device_put(np.ones((4,)), jax.local_devices()[0]).block_until_ready()
        np.asarray(square)


@case
def an_argument_that_is_not_used() -> None:
    if first:
        jax.jit(lambda a, b: a + 1)(square, spread)


@case
def helpers_of_multihost_utils() -> None:
    multihost_utils.process_allgather(np.full((2,), me))
    multihost_utils.broadcast_one_to_all(np.full((3,), me))
    multihost_utils.assert_equal(np.ones(3), "the same")


for number, name in enumerate(sys.argv[1:] or CASES):
    CASES[name]()
    multihost_utils.process_allgather(np.full((number + 1,), me), tiled=True)
multihost_utils.sync_global_devices("end")
print(f"all {number + 1} cases")
