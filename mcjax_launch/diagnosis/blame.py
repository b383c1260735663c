"""Who took the others down, where all that failed are victims, by JAX's own words; pure."""

import re
from collections import Counter
from collections.abc import Sequence

from mcjax_launch.jax_messages.lost_peer import GAVE_UP
from mcjax_launch.protocol.hook_messages import Joining
from mcjax_launch.ranks import these_ranks
from mcjax_launch.run.state import History, RankRun

_UNHEALTHY = re.compile(r"stopped sending heartbeats\):\n((?:\S+\n)+)")
_BARRIER = re.compile(
    r"Shutdown barrier[^@]{0,800}?The first task at the barrier: (\S+?)\. "
    r"Some timed out task names:\n((?:\S+\n)+)"
)
_OWN_BARRIER = re.compile(
    r"Barrier timed out\. Id: (?!Shutdown::)(.{1,200}?)::\d+\.[^@]{0,800}?"
    r"Some timed out task names:\n((?:\S+\n)+)"
)
#: What a rank did that ended as by os._exit(0).
LEFT = (
    "ended with 0 without leaving the job: os._exit() does that, and then JAX takes the process "
    "for dead"
)
_FIELDS = {"coordinator_address": "the coordinator's address", "num_processes": "num_processes"}


def blamed(history: History, victims: Sequence[RankRun]) -> tuple[RankRun, str] | None:
    """The rank to blame, and what it did, in words that follow its name; None: it is not known.

    Args:
        history: of the run.
        victims: the ranks that failed, all by what another did.

    """
    said = "\n".join(run.stderr + _summary(run) for run in victims)
    joining = any(run.joined_at is None for run in victims)
    found = _doubled(history)
    if joining and found is None:
        found = miscalled(history) or _absent(history)
    found = found or _silent(history, said) or _first_done(history, said)
    return found or _vanished(history) or _late(history, said) or _not_come(history, said)


def _summary(run: RankRun) -> str:
    failure = run.failure
    if failure is None:
        return ""
    return failure.summary or (failure.handled.summary if failure.handled is not None else "")


def _doubled(history: History) -> tuple[RankRun, str] | None:
    """A rank two processes of which take part, as one: JAX ends the job for it."""
    for run in history.ranks.values():
        if run.beside is not None:
            where = f", at {run.beside}" if run.beside else ""
            return run, (
                f"called initialize() in a second process as well{where}: what starts processes "
                "belongs below `if __name__ == '__main__':`"
            )
    return None


def miscalled(history: History) -> tuple[RankRun, str] | None:
    """A rank that called initialize() with what cannot be, or with what others do not have."""
    return _odd_coordinates(history) or _other_size(history)


def hopeless(history: History) -> tuple[RankRun, str] | None:
    """A rank that waits in initialize() for what can never be."""
    waiting = [run for run in history.running if run.is_joining]
    seen: dict[tuple[object, object], RankRun] = {}
    for run in waiting:
        called = _of(run)
        count = called.num_processes
        if count is not None and count > history.num_processes:
            words = f"num_processes={count}, but the job has"
            return run, f"{_called(run)} with {words} {history.num_processes}"
        other = seen.setdefault((called.coordinator_address, called.process_id), run)
        if other is not run:
            words = f"process_id={called.process_id}, as rank {other.process_id} did"
            return run, f"{_called(run)} with {words}"
    return None


def _odd_coordinates(history: History) -> tuple[RankRun, str] | None:
    """A rank that called initialize() as another process, of another job, or of another size."""
    told = {run.process_id: run for run in history.ranks.values() if run.coordinates is not None}
    ids = Counter(_of(run).process_id for run in told.values())
    for run in told.values():
        number = _of(run).process_id
        if ids[number] > 1 and number != run.process_id:
            words = f"process_id={number}, which is another's: it was given {run.process_id}"
            return run, f"{_called(run)} with {words}"
    for field, name in _FIELDS.items():
        usual = Counter(getattr(_of(run), field) for run in told.values()).most_common(1)
        for run in told.values():
            if getattr(_of(run), field) != usual[0][0]:
                words = f"{name} {getattr(_of(run), field)}, where others have {usual[0][0]}"
                return run, f"{_called(run)} with {words}"
    return None


def _other_size(history: History) -> tuple[RankRun, str] | None:
    """All agree on a number of processes that this job does not have."""
    for run in history.ranks.values():
        if run.coordinates is not None and _of(run).num_processes != history.num_processes:
            count = _of(run).num_processes
            words = f"num_processes={count}, as the others did, but the job has"
            return run, f"{_called(run)} with {words} {history.num_processes}"
    return None


def _called(run: RankRun) -> str:
    where = _of(run).where
    return f"called initialize() at {where}" if where else "called initialize()"


def _of(run: RankRun) -> Joining:
    assert run.coordinates is not None
    return run.coordinates


def _absent(history: History) -> tuple[RankRun, str] | None:
    """A rank for which the others waited in initialize()."""
    absent = [run for run in history.ranks.values() if run.joining_at is None]
    if not absent:
        return None
    first = min(absent, key=lambda run: (run.status is None, run.order))
    how = "and ended with 0" if first.status == 0 else "while the others waited for it there"
    also = _nor([run.process_id for run in absent if run is not first])
    return first, f"never called initialize(){also}, {how}"


def _silent(history: History, said: str) -> tuple[RankRun, str] | None:
    """A rank that sent no heartbeats any more."""
    found = _UNHEALTHY.search(said)
    run = _rank(history, found[1].split()[0]) if found else None
    if run is None:
        return None
    if run.status == 0:
        return run, LEFT
    return run, (
        "sent no heartbeats any more: it was stopped, swapped or held Python's lock for longer "
        "than heartbeat_timeout_seconds of initialize()"
    )


def _vanished(history: History) -> tuple[RankRun, str] | None:
    """A rank that ended well, but in a way in which its program did not come to its end."""
    for run in history.ranks.values():
        if run.status == 0 and run.joined_at is not None and run.leaving_at is None:
            return run, LEFT
    return None


def _late(history: History, said: str) -> tuple[RankRun, str] | None:
    """A rank that did not come in time to a barrier of the program's own."""
    found = _OWN_BARRIER.search(said)
    late = [_rank(history, name) for name in found[2].split()] if found else []
    runs = [run for run in late if run is not None]
    if found is None or not runs:
        return None
    also = _nor([run.process_id for run in runs[1:]])
    return runs[0], f"did not come in time to the barrier {found[1]!r}{also}"


def _nor(others: Sequence[int]) -> str:
    return f" (nor did {these_ranks(others)})" if others else ""


def _not_come(history: History, said: str) -> tuple[RankRun, str] | None:
    """A rank for which a collective did not wait any longer."""
    late = [run for run in history.ranks.values() if run.joined_at is not None and not run.failed]
    if not late or not any(words in said for words in GAVE_UP):
        return None
    also = _nor([run.process_id for run in late[1:]])
    last = f"; it compiled last at {late[0].compiled.where}" if late[0].compiled else ""
    return late[0], f"did not come to a collective in which others gave up waiting{also}{last}"


def _first_done(history: History, said: str) -> tuple[RankRun, str] | None:
    """A rank that waited in the exit barrier for longer than it, or JAX, has patience."""
    found = _BARRIER.search(said)
    run = _rank(history, found[1]) if found else None
    if found is None or run is None:
        return None
    late = [_rank(history, name) for name in found[2].split()]
    numbers = [one.process_id for one in late if one is not None]
    waited_for = f" for {these_ranks(numbers)}" if numbers else ""
    return run, (
        f"was done and waited in JAX's exit barrier{waited_for}, longer than "
        "shutdown_timeout_seconds of its initialize()"
    )


def _rank(history: History, name: str) -> RankRun | None:
    """The rank of a JAX task: `1`, or `/job:jax_worker/replica:0/task:1`."""
    number = re.search(r"(\d+)$", name)
    return history.rank_of(int(number[1])) if number else None
