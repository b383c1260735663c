"""Pass coordinates to initialize() in the way that argv says."""

import sys

import jax

way = sys.argv[1]
if way == "guide":  # toy.py of the guide: a fixed address, id and number from argv
    jax.distributed.initialize("localhost:10000", int(sys.argv[3]), int(sys.argv[2]))
elif way == "argv":  # gpu_example.py of the guide
    jax.distributed.initialize(
        coordinator_address=sys.argv[2], num_processes=int(sys.argv[4]), process_id=int(sys.argv[3])
    )
elif way == "from import":
    from jax.distributed import initialize

    initialize()
else:
    jax.distributed.initialize()
print(f"process {jax.process_index()} of {jax.process_count()} with {jax.device_count()} devices")


def test_under_pytest() -> None:
    assert jax.process_count() == 2
