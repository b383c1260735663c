"""Print the addresses and ports on which this process listens after a collective."""

import os

import jax
import psutil
from jax.experimental import multihost_utils

jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
process = psutil.Process()
found = {c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
coordinator = int(os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[2])
ips = {address.ip.removeprefix("::ffff:") for address in found}  # IPv4 on a socket for both
print(f"listens on {sorted(ips)}")
print(f"the coordinator has a port: {coordinator in {address.port for address in found}}")
