"""Write a minimal package jax that only joins and leaves the job."""

from pathlib import Path

# Like jax.distributed, as far as addresses go: rank 0 listens, and each of the others tells it of
# which job it is.
INNER = """
import socket

def opened(address):
    family, place = address.split(":", 1)
    if family == "unix":
        return socket.socket(socket.AF_UNIX), place
    host, port = address.rsplit(":", 1)
    made = socket.socket(socket.AF_INET6 if "[" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return made, (host.strip("[]"), int(port))

class _jax:
    @staticmethod
    def get_distributed_runtime_service(here):
        server, place = opened(here)
        server.bind(place)
        server.listen(100)
        return server
"""
STAND_IN = """
import os
from jax._src import distributed as inner

JOB = os.environ["MCJAX_JOB_ID"].encode()

def initialize(coordinator_address=None, num_processes=None, process_id=None{BIND}):
    {FIRST}
    default = "[::]:" + coordinator_address.rsplit(":", 1)[1]
    here = locals().get("coordinator_bind_address") or default
    print("at", coordinator_address, flush=True)
    if process_id == 0:
        print("listens on", here, flush=True)
        server = inner._jax.get_distributed_runtime_service(here)
        while num_processes > 1:
            caller, _ = server.accept()
            told = caller.recv(100)
            assert told in (b"", JOB), told  # one that only looks says nothing
            num_processes -= bool(told)
    else:
        client, place = inner.opened(coordinator_address)
        client.connect(place)
        client.send(JOB)

def shutdown():
    pass
"""
BIND = ", coordinator_bind_address=None"
BARE = "jax.distributed.initialize()"
# What each rank calls; where the launcher's address is given, the program has read it.
EXPLICIT = "jax.distributed.initialize(os.environ['JAX_COORDINATOR_ADDRESS'], 2, int(rank))"


def make_stand_in(folder: Path, bind: str = BIND, first: str = "pass") -> None:
    package = folder / "jax"
    (package / "_src").mkdir(exist_ok=True, parents=True)
    (package / "_src" / "distributed.py").write_text(INNER)
    (package / "__init__.py").write_text("from jax import distributed\n")
    text = STAND_IN.replace("{BIND}", bind).replace("{FIRST}", first)
    (package / "distributed.py").write_text(text)
