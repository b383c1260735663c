"""What a job that stands still looks like, and what to try; pure."""

from collections.abc import Iterable, Sequence

from mcjax_launch.history import History, RankRun
from mcjax_launch.programs import titled
from mcjax_launch.words import these_ranks

_MOST_HOSTS = 3
_ABSENT = "never called initialize()"
_LEAVING = "done, waiting for the others in JAX's exit barrier"


def picture(history: History, *, jax: bool = False) -> list[str]:
    """Lines on where the ranks of a job are, and on what to try.

    Args:
        jax: it is known that they ought to use it.

    """
    programs = history.programs
    running = [run for run in history.ranks.values() if run.status is None]
    told = [run for run in running if run.joining_at is not None]
    if not told and not jax:
        return []
    lines = _progress(history.ranks.values()) + _compiled(running)
    if programs.divergence is not None:
        return [*lines, "the ranks have run different programs:", *programs.words()]
    behind = _behind(history)
    return [*lines, *behind, *_advice(running, bool(behind))]


def _progress(runs: Iterable[RankRun]) -> list[str]:
    groups: dict[str, list[RankRun]] = {}
    for run in runs:
        groups.setdefault(_stage(run), []).append(run)
    groups.pop("", None)
    return [f"{words}: {_placed(group)}" for words, group in groups.items()]


def _placed(runs: Sequence[RankRun]) -> str:
    """Ranks, with their hosts if these are few."""
    hosts = {run.host for run in runs}
    words = these_ranks(run.process_id for run in runs)
    return f"{words} on {', '.join(sorted(hosts))}" if len(hosts) <= _MOST_HOSTS else words


def _stage(run: RankRun) -> str:
    """Where a rank is; empty: in the middle of its program, as it should be."""
    if run.status is not None:
        return "ended" if run.status == 0 else ""
    if run.joining_at is None:
        return _ABSENT
    if run.joined_at is None:
        return "waiting in initialize()"
    return _LEAVING if run.leaving_at is not None else ""


def _compiled(runs: Iterable[RankRun]) -> list[str]:
    """What each rank compiled last, and from which line."""
    groups: dict[str, list[int]] = {}
    for run in runs:
        if run.compiled is not None:
            last = run.compiled
            words = f"{titled(last['name'])} at {last['where'] or 'an unknown line'}"
            words = f"compiles {words}" if run.compiling else f"compiled last {words}"
            groups.setdefault(words, []).append(run.process_id)
        elif run.joined_at is not None:
            groups.setdefault("has compiled nothing", []).append(run.process_id)
    return [f"{these_ranks(ranks)}: {words}" for words, ranks in groups.items()]


def _behind(history: History) -> list[str]:
    """Programs that some ranks have begun and others, whose part it is, have not come to."""
    lines = []
    for program, there, missing in history.programs.waiting():
        words = f"{program.title} at {program.where}" if program.where else program.title
        lines.append(
            f"{these_ranks(there)}: in {words}, to which {these_ranks(missing)} has not come"
        )
    return lines


def _advice(running: Iterable[RankRun], behind: bool) -> list[str]:
    stages = {_stage(run) for run in running}
    on_cpu = any(run.platform == "cpu" for run in running)
    if _ABSENT in stages:
        words = "a rank that does not call initialize() holds up all others: what does it wait for?"
    elif _LEAVING in stages:
        words = "the ranks do not take the same number of steps: is each one's data as long?"
    elif behind:
        words = "the rank that has not come took another branch, or waits for something of its own"
    else:
        words = "a rank that stands apart took another branch, or skipped a program it knew already"
    lines = [f"hint: {words}"]
    if not behind and _ABSENT not in stages:
        lines.append("hint: --verify-spmd, which ends the job where the ranks' programs differ")
        if on_cpu:
            flag = "--xla_cpu_collective_timeout_seconds=60"
            lines.append(f"hint: -x XLA_FLAGS={flag}, which makes an error of a lost collective")
    return lines
