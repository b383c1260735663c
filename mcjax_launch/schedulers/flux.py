"""Driver for Flux: the hosts of an instance or job.

The script of `flux batch` and the shell of `flux alloc` have only the variables of their instance;
`flux` commands return the rest.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host, parse_list
from mcjax_launch.ranks import parse_ranges
from mcjax_launch.schedulers import Driver, allocation

_SCRIPT = "the script of flux batch, or in the shell of flux alloc"


class Node(NamedTuple):
    """A host of an instance, with its broker's rank; 0 cores or None for GPU ids if unknown."""

    name: str
    rank: int
    cores: int = 0
    gpus: tuple[str, ...] | None = None


class Flux(Driver):
    """Driver for Flux.

    ssh starts the agents: `flux exec` prints what it receives up to the first NUL byte.
    """

    def find_hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts, each with `slots` or as the batch job requested; else with 1 slot."""
        tasks = environ.get("FLUX_JOB_SIZE", "")
        if "FLUX_TASK_RANK" in environ and tasks.isdecimal() and int(tasks) > 1:
            raise allocation.make_several_error(
                f"flux run has started {int(tasks)} launchers, one per task", _SCRIPT
            )
        allocation.check_alone(environ, _SCRIPT)
        nodes = find_nodes(environ.get("FLUX_JOB_ID", ""))
        asked = _read_jobspec(environ)
        each = -(-int(tasks) // len(nodes)) if tasks.isdecimal() else 1
        return allocation.make_hosts(
            ((node.name, _compute_slots(node, asked, each)) for node in nodes),
            "flux resource",
            slots,
            {node.name: node.gpus for node in nodes if node.gpus is not None},
        )


DRIVER = Flux()


@cache
def find_nodes(job: str) -> tuple[Node, ...]:
    """Return the hosts of a job, or of the instance if `job` is "", in the order of their brokers.

    Raises:
        LaunchError: flux lists no hosts, or the instance is the system's rather than the user's.

    """
    if not job and not _is_ours():
        raise LaunchError(
            "this is Flux's system instance, not an allocation of yours: run mcjax-launch in "
            f"{_SCRIPT}"
        )
    ways = [("flux", "job", "info", job, "R")] if job else []
    for way in (*ways, ("flux", "resource", "R")):
        if nodes := parse_resources(allocation.run_client(*way)):
            return nodes
    if said := ",".join(allocation.run_client("flux", "hostlist", "local").split()):
        names = [host.name for host in parse_list(said, 1, "flux hostlist: ")]
        return tuple(Node(name, rank) for rank, name in enumerate(names))
    raise LaunchError(f"flux lists no hosts: run mcjax-launch in {_SCRIPT}")


@cache
def _is_ours() -> bool:
    """Return whether the instance is the user's own, or its owner is unknown."""
    owner = allocation.run_client("flux", "getattr", "security.owner").strip()
    return not owner.isdecimal() or int(owner) == os.getuid()


def parse_resources(text: str) -> tuple[Node, ...]:
    """Parse a Flux resource set (R, version 1) into hosts; () if the text is invalid; pure."""
    try:
        execution = json.loads(text)["execution"]
        # A name occurs twice if several brokers share a host.
        names = [name for part in execution["nodelist"] for name in parse_names(part)]
        nodes: dict[int, tuple[int, tuple[str, ...] | None]] = {}
        for part in execution["R_lite"]:
            children = part["children"]
            gpus = tuple(map(str, parse_ids(children["gpu"]))) if "gpu" in children else ()
            for rank in parse_ids(part["rank"]):
                nodes[rank] = len(parse_ids(children.get("core", ""))), gpus
        if len(names) != len(nodes):
            return ()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
    return tuple(
        Node(name, rank, *nodes[rank]) for name, rank in zip(names, sorted(nodes), strict=True)
    )


def parse_names(text: str) -> list[str]:
    """Return the names in a list of hosts such as `a[0-3,5],b`, including duplicates."""
    parts = text.replace("],", "] ").split() if "[" in text else text.split(",")
    return [host.name for part in parts for host in parse_list(part, 1, "flux: ")]


def parse_ids(text: str) -> list[int]:
    """Return the numbers of an idset such as `0-3,7` or `[0-3,7]`.

    Raises:
        ValueError: the text is not an idset.

    """
    return sorted(parse_ranges(str(text).strip("[]"))) if text else []


def _read_jobspec(environ: Mapping[str, str]) -> Any:
    """Return the jobspec (parsed JSON) of the batch job that is this instance; None if unknown."""
    job = environ.get("FLUX_ENCLOSING_ID", "")
    if not job or "FLUX_JOB_ID" in environ:
        return None
    try:
        return json.loads(allocation.run_client("flux", "--parent", "job", "info", job, "jobspec"))
    except (ValueError, RecursionError):
        return None


def _compute_slots(node: Node, jobspec: Any, otherwise: int = 1) -> int:
    """Return a node's slots: requested tasks per node, else by its cores, else `otherwise`."""
    try:
        (resource,) = jobspec["resources"]
        if resource["type"] == "node":
            (resource,) = resource["with"]
            return int(resource["count"])
        cores = next(part["count"] for part in resource["with"] if part["type"] == "core")
        return max(node.cores // int(cores), 1)
    except (KeyError, TypeError, ValueError, StopIteration):
        return otherwise
