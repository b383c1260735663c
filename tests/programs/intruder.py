"""Join the job at this address as its process 1, with these arguments of initialize()."""

import sys

import jax

address, *words = sys.argv[1:]
given = dict(word.split("=") for word in words)
limits = {"cluster_detection_method": "deactivate", "initialization_timeout": 5}
jax.distributed.initialize(address, 2, 1, **limits, **given)
