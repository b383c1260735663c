"""Exchange values at the coordinator and meet at a barrier, without a collective.

The rank that argv names fails then, while the others wait for it.
"""

import sys

import jax
from jax._src import distributed

jax.distributed.initialize()
client = distributed.global_state.client
rank, count = jax.process_index(), jax.process_count()
client.key_value_set(f"value of {rank}", str(rank * rank))
client.wait_at_barrier("all have", 60_000)
values = [client.blocking_key_value_get(f"value of {number}", 60_000) for number in range(count)]
print(f"process {rank} of {count} knows {' '.join(values)}", flush=True)
if sys.argv[1:]:
    assert rank != int(sys.argv[1]), "a bad batch"
    client.wait_at_barrier("never", 60_000)
