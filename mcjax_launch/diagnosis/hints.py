"""Mistakes that are known, by the words that they end with, and what to do about each; pure."""

import signal

from mcjax_launch.run.state import RankRun

_APART = "the ranks are at different places of the program; --verify-spmd looks for where they part"
# What is said (any of these), and the advice.
_KNOWN: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("must be called before any JAX c",),
        "call jax.distributed.initialize() before anything that uses a device: also what your "
        "modules do while they are imported counts",
    ),
    (
        ("Failed to add port to server", "Failed to start RPC server", "Address already in use"),
        "the port is in use: leave the program's own address or --coordinator's port out, and a "
        "free one is picked",
    ),
    (
        ("different incarnation", "newer incarnation"),
        "two processes came to the coordinator as one: another job uses this address, or two ranks "
        "have one process_id",
    ),
    (
        ("sync_global_devices name mismatch", "Mismatch in the number of", "op.preamble.length"),
        _APART,
    ),
    (
        ("RESOURCE_EXHAUSTED", "MemoryError", "Out of memory", "out of memory", "bad_alloc"),
        "out of memory: less for each device, or fewer ranks a host; on GPUs that ranks share, "
        "--gpus-per-process or XLA_PYTHON_CLIENT_MEM_FRACTION",
    ),
    (
        ("Unknown flags in XLA_FLAGS", "Unknown flag in XLA_FLAGS"),
        "XLA_FLAGS names a flag that the ranks' jaxlib does not have",
    ),
    (
        ("EOFError: EOF when reading a line",),
        "the standard input of ranks is empty",
    ),
    (
        ("GetKeyValue() timed out", "Timed out waiting for key"),
        "a rank waited in vain for what another should have told it: has that one come as far?",
    ),
)
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_UNHOOKED = ("Number of processes must be defined", "coordinator_address should be defined")
_PROXIES = "JAX detected proxy variable"


def advice(cause: RankRun, *, diverged: bool = False) -> list[str]:
    """A line on what to do about a rank's failure, if it is a mistake that is known.

    Args:
        diverged: it has been shown where the ranks' programs part.

    """
    words = _advice(cause)
    if words == _APART and diverged:
        return []
    return [f"hint: {words}"] if words else []


def _advice(cause: RankRun) -> str:
    failure = cause.failure
    said = cause.stderr
    if (
        failure is not None and not failure.exited
    ):  # then that is what counts, not what it has printed before
        said = f"{failure.exception}: {failure.summary}"
    if cause.joining_at is None and any(words in said for words in _UNHOOKED):
        return (
            "the hook did not run in this Python: python -I, -E or -S, a PYTHONPATH that replaces "
            "ours, or --no-hook keep it out"
        )
    if failure is not None and failure.module in ("jax", "jaxlib"):
        return (
            f"the ranks' Python, {failure.python}, has no {failure.module}: "
            "install it there or choose another with --python"
        )
    if cause.joining_at is not None and cause.joined_at is None and _PROXIES in cause.stderr:
        return "proxy variables can keep processes apart: try -x http_proxy= -x https_proxy="
    known = next((what for marks, what in _KNOWN if any(mark in said for mark in marks)), "")
    fault = -(cause.status or 0) in _FAULTS and "Fatal Python error" not in cause.stderr
    return known or (
        "-x PYTHONFAULTHANDLER=1 shows the line at which that happens" if fault else ""
    )
