"""Hide the GPU from all ranks but those of argv[2:], and exchange data as XLA does.

argv[1] is for how long they wait for the others, in seconds, where XLA waits for two minutes.
"""

import sys

import jax
from jax._src import distributed, hardware_utils, xla_bridge

milliseconds = int(float(sys.argv[1]) * 1000)
without = [int(rank) for rank in sys.argv[2:]]


def start_cuda() -> object:
    """xla/pjrt/distributed/topology_util.cc: process 0 collects, and the others wait for that."""
    state = distributed.global_state
    client, me = state.client, state.process_id
    client.key_value_set(f"cuda:local_topology/cuda/{me}", "1")
    if me == 0:
        for process in range(state.num_processes):
            client.blocking_key_value_get(f"cuda:local_topology/cuda/{process}", milliseconds)
        client.key_value_set("cuda:global_topology/cuda", "1")
    client.blocking_key_value_get("cuda:global_topology/cuda", 2 * milliseconds)
    return xla_bridge.make_cpu_client()


jax.distributed.initialize()
if distributed.global_state.process_id not in without:
    hardware_utils.has_visible_nvidia_gpu = lambda: True
    xla_bridge.register_backend_factory("cuda", start_cuda, priority=300, fail_quietly=False)
print("devices", len(jax.local_devices()), flush=True)
distributed.global_state.client.wait_at_barrier("end", 100_000)
