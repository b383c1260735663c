"""--preload auto: the choice of jobs for which modules are imported once; pure.

This is the part that the launcher can decide. The hosts decide the rest from PROGRAM's source
(`agent/program.py`).
"""

import errno
import os
from collections.abc import Sequence

from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.machine.system import read_regular_file

#: The option's value.
AUTO = ("auto",)
#: The modules that are imported then.
MODULES = ("jax",)
#: A program that imports one of these imports jax.
LIBRARIES = frozenset(
    {
        *("jax", "flax", "optax", "orbax", "equinox", "haiku", "chex", "diffrax", "lineax"),
        *("optimistix", "numpyro", "netket", "blackjax", "brax", "distrax", "rlax", "jaxopt"),
        *("jraph", "penzai", "levanter", "haliax", "MaxText", "maxtext", "t5x", "praxis", "paxml"),
        *("evosax", "ott", "e3nn_jax", "jax_md", "mujoco_playground", "tunix", "axlearn"),
        *("mpi4jax", "jaxlie", "quax", "eqxvision", "treescope", "clu"),
    }
)


def find_obstacle(job: Job) -> str:
    """Return why the ranks of a job cannot be forked; "" if they may be."""
    if not job.expects_hooks:
        return "PROGRAM is not a Python program with the hook"
    if job.wrappers:
        return "ranks run under --wrap"
    return "rank 0 reads --stdin" if job.stdin else ""


def find_reason_against(job: Job, hosts: Sequence[Host]) -> str:
    """Return why a job gains nothing from imports beforehand; "" if it may gain.

    Args:
        job: a job with --preload auto.
        hosts: the hosts that get ranks.

    """
    if job.processes_here <= len(hosts):
        return "no host has two ranks"
    if why := find_obstacle(job):
        return why
    is_here = any(host.is_local and not host.chdir for host in hosts)
    if is_here and job.is_python and not job.module:
        return _find_reason_against_file(os.path.join(job.chdir, job.program[0]))
    return ""


def _find_reason_against_file(path: str) -> str:
    """Return why PROGRAM's file gains nothing from imports beforehand; "" if it may gain."""
    try:
        text = read_regular_file(path)
    except OSError as error:
        return f"{os.path.basename(path)} {error.strerror}" if error.errno == errno.EINVAL else ""
    if any(name.encode() in text for name in LIBRARIES):
        return ""
    return f"{os.path.basename(path)} does not import JAX"
