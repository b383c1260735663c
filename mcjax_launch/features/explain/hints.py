"""Hints: advice to the user about a failure; pure."""

import signal

from mcjax_launch.features.explain.jax_messages.known_errors import (
    KnownError,
    WrongDevices,
    advise_on_variable,
    find_known_error,
    has_fault_traceback,
    lacks_coordinates,
    misses_shared_program,
    parse_wrong_devices,
    warns_of_proxies,
)
from mcjax_launch.features.explain.rules import mentions
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.journal.state import RunState
from mcjax_launch.machine.interpreter import explain_old_jax
from mcjax_launch.ranks import format_count, format_slices
from mcjax_launch.wire.hook_messages import BackendStart

# JAX's line that fails if no backend can be started (`jax/_src/xla_bridge.py`).
_NO_BACKEND = "assert _default_backend is not None"
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
# Consequences of different programs; a line on the programs says more.
_OF_DIVERGENCE = (KnownError.OUT_OF_STEP, KnownError.KEY_NEVER_SET)


_ONE_CALL = (
    "outside shard_map JAX calls a callback once, on one rank, with the data of all ranks: the "
    "wrong data need not be this rank's"
)


_NOT_SHARED = (
    "with jax_share_binary_between_hosts one rank compiles for all, and this rank waited for it: "
    "the two ranks have different programs, or different keys for them, as on CPU; --verify-spmd "
    "shows where the programs differ"
)


def find_hints_safely(state: RunState, run: RankRun) -> list[str]:
    """Return a rank's `find_failure_hints`; on an exception record a bug, return []."""
    sequences = state.sequences  # with --verify-spmd, no hint advises it
    diverged = sequences is not None and (sequences.ends_job or state.differs)
    try:
        return find_failure_hints(run, ranks=len(state.ranks), diverged=diverged)
    except Exception as error:
        state.failed_hints.append(f"a hint failed: {error!r}; please report this")
        return []


def find_failure_hints(run: RankRun, *, ranks: int = 1, diverged: bool = False) -> list[str]:
    """Return a line of advice on a rank's failure; [] if it is not a known mistake.

    Args:
        run: facts on the failed rank.
        ranks: number of ranks in the job.
        diverged: True if where the ranks' programs differ is known, or looked for.

    """
    hint = _choose_hint(run, ranks, diverged=diverged)
    return [f"hint: {hint}"] if hint else []


def _choose_hint(run: RankRun, ranks: int, *, diverged: bool) -> str:
    failure, membership = run.failure, run.membership
    text = run.stderr
    if failure is not None and not failure.exited:  # what was printed before does not count
        text = f"{failure.exception}: {failure.summary}"
    elif failure is not None and failure.handled is not None and failure.test:
        text = f"{failure.handled.exception}: {failure.handled.summary}"
    if membership.joining_at is None and lacks_coordinates(text):
        return (
            "the hook did not run in this Python: python -I, -E or -S, a replaced PYTHONPATH, "
            "or --no-hook keeps it out"
        )
    if advice := _advise_in_context(run, text):
        return advice
    if failure is not None and failure.module in ("jax", "jaxlib"):
        return (
            f"the ranks' Python, {failure.python}, has no {failure.module}: "
            "install it there, or choose another (--python, if PROGRAM is a file, -m or `python`)"
        )
    if membership.is_joining and warns_of_proxies(run.stderr):
        return "proxy variables can keep processes apart: try -x http_proxy= -x https_proxy="
    if failure is not None and failure.backend is not None:
        return _advise_on_backend(failure.backend)
    devices = parse_wrong_devices(text, failure.line or "") if failure is not None else None
    if devices is not None and not run.compilations.on_accelerator:
        mine = membership.backend.devices if membership.backend is not None else 0
        return _advise_on_devices(devices, mine, ranks)
    error = find_known_error(text)
    if error is KnownError.SEVERAL_SLICES and failure is not None and failure.slices:
        return f"JAX sees {format_slices(failure.slices)}: {error.hint}"
    if error is KnownError.KEY_NEVER_SET and misses_shared_program(text):
        return _NOT_SHARED
    if error is not None:
        is_known = diverged and error in (*_OF_DIVERGENCE, KnownError.OUT_OF_STEP)
        return "" if is_known else error.hint
    if ranks > 1 and _is_of_shared_callback(run):
        return _ONE_CALL
    shown = run.process.stack or has_fault_traceback(run.stderr)
    if -(run.status or 0) in _FAULTS and run.process.hooked and not shown:
        return "rerun with -x PYTHONFAULTHANDLER=1 to see the line that crashed"
    return explain_old_jax(membership.imported.jax) if membership.imported is not None else ""


def _advise_in_context(run: RankRun, text: str) -> str:
    """Return advice on an error that the text alone does not explain; "" for other errors."""
    failure, call = run.failure, run.membership.call
    if failure is None:
        return ""
    if failure.exception == "EOFError" and "getpass" in failure.traceback:
        return KnownError.STDIN_EMPTY.hint
    if failure.exception == "AssertionError" and _NO_BACKEND in failure.traceback + run.stderr:
        return (
            "JAX_PLATFORMS names only platforms that this jax has no plugin for: "
            f'{failure.python} -m pip install "jax[cuda13]" for cuda, or leave out JAX_PLATFORMS'
        )
    late = find_known_error(text) is KnownError.INITIALIZED_TOO_LATE
    if run.membership.joined_at is not None and (late or "should only be called once" in text):
        where = f" at {call.where}" if call is not None and call.where else ""
        return (
            f"this process has called initialize() already{where}: call it once, or only if not "
            "jax.distributed.is_initialized()"
        )
    return advise_on_variable(text, failure.line or "")


def _advise_on_backend(start: BackendStart) -> str:
    """Return advice to call initialize() before the line that started a backend."""
    line = f"{start.where}: {start.line}" if start.line else start.where
    if not start.imported_at:
        return f"a backend was started before, at {line}; call jax.distributed.initialize() first"
    what = f"`{start.import_line}`" if start.import_line else "an import"
    return (
        f"{what} at {start.imported_at} has started a backend (at {line}): call "
        "jax.distributed.initialize() before that import"
    )


def _is_of_shared_callback(run: RankRun) -> bool:
    """Return whether the rank failed in a callback that JAX may have called for several ranks.

    JAX calls a callback for all ranks on the first device of a program; inside shard_map each rank
    calls it itself.
    """
    if run.failure is None or not run.unhandled_errors:
        return False

    shared = [program.ranks for program in run.compilations.ran.values() if len(program.ranks) > 1]
    calls = any(min(ranks) == run.process_id for ranks in shared)
    said = run.failure.summary
    errors = [lost.error for lost in run.unhandled_errors if lost.error.callback]
    return calls and any(mentions(error, said) for error in errors)


def _advise_on_devices(devices: WrongDevices, mine: int, ranks: int) -> str:
    """Return advice on the value of -d that gives a program its devices; "" if none fits.

    Args:
        devices: numbers of devices in the program's error message.
        mine: number of the rank's devices; 0 if unknown.
        ranks: number of ranks in the job.

    """
    has = devices.has
    if has is None:
        has = mine if devices.are_local else mine * ranks
    if not has or (mine and has not in (mine, mine * ranks)):  # other ranks have another number
        return ""
    wants, of_job = devices.wants, f"the job has {format_count(has, 'device')}"
    if wants == has:  # something else is wrong
        return ""
    if ranks == 1:
        return f"{of_job}; -d {wants} gives {wants}"
    if devices.are_local or has % ranks or has == mine:
        return f"each rank has {format_count(has, 'device')}; -d {wants} gives {wants}"
    each, rest = divmod(wants, ranks)
    gives = f"{ranks} ranks cannot share {wants} equally: use another -n"
    if each and not rest:
        gives = f"-d {each} gives {wants}"
    return f"{of_job}, {has // ranks} in each rank; {gives}"
