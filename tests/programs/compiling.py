"""Compile and run argv[1] programs over all processes in a thread of each rank."""

import sys
import threading

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("all",)), P("all"))
x = jax.make_array_from_callback((4, 4), sharding, lambda index: np.ones((4, 4))[index])


def work() -> None:
    print("compiling", flush=True)
    for number in range(int(sys.argv[1])):
        jax.jit(lambda x, number=number: x * number)(x).block_until_ready()
        if number % 10 == 0:
            print(number, flush=True)


thread = threading.Thread(target=work)
thread.start()
thread.join()
