"""What a job that stands still looks like, and what to try; pure."""

from collections.abc import Iterable, Sequence

from mcjax_launch.diagnosis.blame import miscalled
from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.run.spmd import titled
from mcjax_launch.run.state import History, RankRun

_MOST_HOSTS = 3
_ABSENT = "never called initialize()"
_GONE = "ended with 0, never called initialize()"
_BEHIND, _APART = "behind", "apart"
_LEAVING = "done, waiting for the others in JAX's exit barrier"

_HINTS = {
    _GONE: "a rank that ends without initialize() holds up all others: did it take another branch?",
    _ABSENT: "a rank that does not call initialize() holds up all others: what does it wait for?",
    _LEAVING: "the ranks do not take the same number of steps: is each one's data as long?",
    _BEHIND: "a rank that has not come took another branch, or waits for something of its own",
    _APART: "if a rank stands apart in the stacks, it took another branch, or skipped a program "
    "that it had run before",
}


def picture(history: History, *, jax: bool = False) -> list[str]:
    """Lines on where the ranks of a job are.

    Args:
        jax: it is known that they ought to use it.

    """
    if not jax and not _uses_jax(history):
        return []
    lines = _progress(history) + _miscalled(history) + _compiled(history.running)
    if history.diverged:
        return [*lines, "the ranks have run different programs:", *history.programs.words()]
    return lines + _behind(history)


def hints(history: History) -> list[str]:
    """Lines on what to try with a job that stands still."""
    runs = history.running
    known = history.diverged
    if known or not _uses_jax(history) or any(run.compilations for run in runs):
        return []
    stages = {_stage(run) for run in history.ranks.values()}
    for stage in (_GONE, _ABSENT):
        if stage in stages:
            return [f"hint: {_HINTS[stage]}"]
    if all(run.joined_at is None for run in runs):
        return []  # what they wait for has been said, or nobody knows
    if history.programs.waiting():
        return [f"hint: {_HINTS[_BEHIND]}"]
    lines = [_HINTS[_LEAVING if _LEAVING in stages else _APART]]
    if any(run.platform == "cpu" for run in runs):
        lines.append(
            "to make an error of a collective to which a rank does not come: "
            "-x XLA_FLAGS=--xla_cpu_collective_timeout_seconds=60"
        )
    return [f"hint: {line}" for line in lines]


def _uses_jax(history: History) -> bool:
    return any(run.joining_at is not None for run in history.running)


def _progress(history: History) -> list[str]:
    groups: dict[str, list[RankRun]] = {}
    for run in history.ranks.values():
        groups.setdefault(_stage(run), []).append(run)
    groups.pop("", None)
    several = history.hosts > 1
    return [f"{words}: {_placed(group, several)}" for words, group in groups.items()]


def _miscalled(history: History) -> list[str]:
    """Why ranks that wait in initialize() may do so."""
    if not any(run.is_joining for run in history.running):
        return []
    found = miscalled(history)
    return [f"rank {found[0].process_id} {found[1]}"] if found is not None else []


def _placed(runs: Sequence[RankRun], several_hosts: bool) -> str:
    """Ranks, with their hosts if there are several, and these are few."""
    hosts = {run.host for run in runs}
    words = these_ranks(run.process_id for run in runs)
    return (
        f"{words} on {', '.join(sorted(hosts))}"
        if several_hosts and len(hosts) <= _MOST_HOSTS
        else words
    )


def _stage(run: RankRun) -> str:
    """Where a rank is; empty: in the middle of its program, as it should be."""
    if run.status is not None:
        gone = "ended with 0" if run.joining_at is not None else _GONE
        return gone if run.status == 0 else ""
    if run.joining_at is None:
        return _ABSENT
    if run.joined_at is None:
        return "waiting in initialize()"
    return _LEAVING if run.leaving_at is not None and not run.left else ""


def _compiled(runs: Iterable[RankRun]) -> list[str]:
    """What each rank compiled last, and from which line."""
    groups: dict[str, list[int]] = {}
    for run in runs:
        if run.compiled is not None:
            last = run.compiled
            words = f"{titled(last.name)} at {last.where or 'an unknown line'}"
            words = f"compiling {words}" if run.compilations else f"compiled last {words}"
            groups.setdefault(words, []).append(run.process_id)
        elif run.joined_at is not None:
            groups.setdefault("compiled nothing yet", []).append(run.process_id)
    return [f"{these_ranks(ranks)}: {words}" for words, ranks in groups.items()]


def _behind(history: History) -> list[str]:
    """Programs that some ranks have begun and others, whose part it is, have not come to."""
    lines = []
    for program, there, missing in history.programs.waiting():
        words = f"{program.title} at {program.where}" if program.where else program.title
        lines.append(
            f"{these_ranks(there)}: in {words}, to which {these_ranks(missing)} {have(missing)} "
            "not come"
        )
    return lines
