"""Apply the messages of ranks' hooks to the state of the run."""

from mcjax_launch.runs.programs import RanProgram
from mcjax_launch.runs.rank_run import ErrorReport, RankRun
from mcjax_launch.runs.state import RunState
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.messages import FromHook

# Kept per rank; a hook reports fewer.
_MOST_ERRORS = 256


def apply(state: RunState, event: FromHook, at: float) -> bool:
    """Apply a hook's message to the run; return whether it reports a joined program's failure.

    Args:
        state: state of the run, updated in place.
        event: the hook's message, with the rank and the agent's information on it.
        at: time at which the launcher received it, in time.monotonic's seconds.

    """
    run = state.ranks[event.rank]
    membership = run.membership
    state.activity.active_at = at
    state.activity.heard_at = at
    match event.message:
        case hook.Joining() as call:
            _record_call(state, run, event, call, at)
        case hook.Joined(process_id=process) if membership.joined_at is None:
            membership.joined_at = at
            state.record_process(event.rank, process)
        case hook.ProcessNumber(platform, process) if membership.joined_at is not None:
            state.get_processes(run).record(event.rank, platform, process)
        case hook.Leaving() if membership.leaving_at is None:
            membership.leaving_at = at
        case hook.Program() as program:
            ranks = state.find_members(run, program.platform, program.processes)
            run.compilations.ran[program.where] = RanProgram(program.name, ranks, program.where)
        case hook.Compiling() | hook.ImportedJax() as fact:
            state.activity.record_jax_use(at)
            _record_fact(run, fact, at)
        case hook.Failed() as failure:
            return _record_failure(state, run, event, failure, at)
        case fact:
            _record_fact(run, fact, at)
    return False


def _record_fact(run: RankRun, fact: hook.HookMessage, at: float) -> None:
    """Record what only concerns the rank."""
    membership, process, compilations = run.membership, run.process, run.compilations
    match fact:
        case hook.ImportedJax():
            membership.imported = fact
        case hook.Backend():
            membership.backend = fact
        case hook.NotJoined():
            membership.refused = fact if membership.joined_at is None else None
            membership.refused_at = at
        case hook.CalledBelow():
            membership.called_below.setdefault(fact, at)
        case hook.Left():
            membership.left = True
        case hook.Compiling():
            compilations.begin(fact, at)
        case hook.Compiled():
            compilations.end(at)
        case hook.Crashed(stack):
            process.stack = stack
        case hook.CollectedTests():
            process.tests = fact
        case hook.FailedTest():
            process.failed_test = fact, at
        case hook.UnhandledError() if len(run.unhandled_errors) < _MOST_ERRORS:
            run.unhandled_errors.append(ErrorReport(at, fact))


def _record_call(
    state: RunState, run: RankRun, event: FromHook, call: hook.Joining, at: float
) -> None:
    """Record a call of initialize() by a process of a rank."""
    state.initialize_calls += 1
    membership = run.membership
    if event.beside:
        membership.second_process = call.where
    elif not event.repeated:
        if membership.has_called:  # the next program of this rank
            membership.turn += 1
            membership.backend = None
            membership.joined_at = membership.leaving_at = None
            membership.left = False
            run.unhandled_errors.clear()
        membership.joining_at, membership.call, membership.refused = at, call, None


def _record_failure(
    state: RunState, run: RankRun, event: FromHook, failure: hook.Failed, at: float
) -> bool:
    """Record a program's failure; return True if its process is held up by JAX's exit."""
    if run.hidden_failure is not None:
        return False
    others = state.get_processes(run).find_renumbered_ranks(state.ranks)
    if len(others) == len(failure.slices):  # by process; make it by rank
        by_rank = sorted((rank, failure.slices[process]) for process, rank in others.items())
        failure = failure.copy_with(slices=tuple(slice_ for _, slice_ in by_rank))
    run.process.has_failed = run.process.has_failed or event.main
    if failure.joined:
        run.failure = failure
        run.after_signal, run.process.signals = bool(event.sent), event.sent
        if run.failed:
            state.record_failure(run, at)
        run.order = state.increment_order()
        return True
    if event.main:  # explains a status that is yet to come
        run.failure = failure
    return False
