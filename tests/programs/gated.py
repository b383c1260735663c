"""Run another program on one rank, in the way that argv says: no rank may see a result.

A rank that does prints "result".
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from spread import spread

way = sys.argv[1]
if way == "cached":
    jax.config.update("jax_compilation_cache_dir", sys.argv[2])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.distributed.initialize()
me = jax.process_index()
odd = me == jax.process_count() - 1
x = spread(2)
function: Callable[..., jax.Array] = (lambda a: (a * 3).sum()) if odd else (lambda a: a.sum())


def tell_when_held() -> None:
    """Say so when the main thread waits at the gate."""
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code.co_name != "receive":  # type: ignore[index]
        time.sleep(0.05)
    print("held", flush=True)


def show(result: object) -> None:
    print("result", jax.block_until_ready(result), flush=True)


if way == "ahead":
    show(jax.jit(function).lower(x).compile()(x))
elif way == "pmap":
    mapped = jax.pmap(lambda a: jax.lax.psum(function(a), "i"), axis_name="i")
    show(mapped(np.ones((jax.local_device_count(), 3), np.float32)))
elif way == "thread":
    threads = [threading.Thread(target=lambda: show(jax.jit(function)(x))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
elif way == "cached":
    compiled = [jax.jit(f).lower(x).compile() for f in (function, jnp.sum)]
    print("cached" if os.listdir(sys.argv[2]) else "empty", flush=True)
    show(compiled[0](x))
elif way == "donated":
    show(jax.jit(lambda a: a * function(a), donate_argnums=0)(x))
elif way == "callback":

    def call(a: np.ndarray) -> np.ndarray:
        print("result of a callback", flush=True)
        return np.asarray(a)

    show(
        jax.jit(lambda a: jax.pure_callback(call, jax.ShapeDtypeStruct((), x.dtype), function(a)))(
            x
        )
    )
elif way == "with nothing exchanged":
    show((x * 3 if odd else x + 1).addressable_shards[0].data)
elif way == "held by a file":  # the others wait for what rank 0 writes when it has run a program
    path = Path(sys.argv[2])
    if me == 0:
        more = jax.jit(jnp.exp)(x).addressable_shards[0].data  # needs none of the others
        path.touch()
    while not path.exists():
        time.sleep(0.05)
    show(more if me == 0 else jax.jit(jnp.exp)(x).addressable_shards[0].data)
    show(jax.jit(jnp.max)(x))
elif way == "interrupted":  # by a signal whose handler raises, as one that ends a step does
    import signal

    class Alarm(Exception):
        pass

    def ring(signum: int, frame: object) -> None:
        raise Alarm

    if not odd:
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            jax.jit(jnp.sum)(x)
        except Alarm:
            print("alarm", flush=True)
        Path(sys.argv[2], str(me)).touch()
    while len(os.listdir(sys.argv[2])) < jax.process_count() - 1:
        time.sleep(0.05)
    show(jax.jit(jnp.sum)(x))
elif way == "saved":  # on Ctrl-C, after some ranks have come to a program and one has not
    total, most = (jax.jit(f).lower(x).compile() for f in (jnp.sum, jnp.max))
    try:
        print("ready", flush=True)
        if odd:
            time.sleep(1000)
        total(x)
    except KeyboardInterrupt:
        print("saved", most(x), flush=True)
elif way == "skipped":  # a program that all have run before, in a loop of such
    total, most, mean = (jax.jit(f) for f in (jnp.sum, jnp.max, jnp.mean))
    for number in range(6):
        total(x).block_until_ready()
        if not (odd and number == 3):
            most(x).block_until_ready()  # at: not skipped
    show(mean(x))  # at: skipped
elif way == "never":  # one rank does not come
    if odd:
        print("asleep", flush=True)
        time.sleep(1000)
    threading.Thread(target=tell_when_held, daemon=True).start()
    show(jax.jit(function)(x))  # at: never
