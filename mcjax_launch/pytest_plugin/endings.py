"""What is to be told of a test that was ended before all its ranks were through."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mcjax_launch.api.result import Result
from mcjax_launch.jax_messages.lost_peer import says_ended_by_jax
from mcjax_launch.jax_messages.noise import without_noise
from mcjax_launch.pytest_plugin.groups import RankGroup
from mcjax_launch.pytest_plugin.merge import EarlyEnd
from mcjax_launch.pytest_plugin.progress import Early, RanksProgress
from mcjax_launch.ranks import these_ranks

_MOST_CRASHING_S = 3.0
_MOST_LINES = 100
_USERS = "  > "
_IDLE = "multiprocessing/connection.py"
# The calls below a test or a fixture, in faulthandler's dump.
_BELOW = ("/_pytest/", "/pluggy/", "/mcjax_launch/pytest_plugin/")


def ended_early(group: RankGroup, progress: RanksProgress, early: Early) -> EarlyEnd:
    """Find out what is to be told; the group's job ends for that.

    Args:
        group: whose ranks run the test.
        progress: of the test.
        early: why it is ended.

    """
    output = {rank: group.output(rank) for rank in progress.reports}
    if early is Early.CRASHED:
        return _crashed(group, progress, output)
    running, hints = progress.running, early is Early.TIMED_OUT
    was = "were" if len(running) > 1 else "was"
    if hints and progress.limit is not None:
        limit = progress.limit
        what = f"{was} still running after {round(limit.seconds, 1):g} s ({limit.source})"
    else:
        what = f"{was} still running {progress.grace_s:.1f} s later, and {was} ended"
    return EarlyEnd(
        "Timeout",
        f"{these_ranks(running)} {what}",
        frozenset(running),
        what,
        by_itself=False,
        seconds=progress.seconds,
        sections=[("stacks, innermost call first", stacks(group.stacks(), hints=hints))],
        output={rank: output[rank] for rank in running},
    )


def _crashed(
    group: RankGroup, progress: RanksProgress, output: dict[int, tuple[str, ...]]
) -> EarlyEnd:
    """The rank that went first, as the launcher sees it; it ends the others."""
    seconds = progress.seconds
    group.send(None)  # whoever is through may save its coverage
    result = group.result(_MOST_CRASHING_S)
    rank, why = blamed(result, progress.gone, {rank: group.output(rank) for rank in output})
    ranks = {one.rank: one for one in result.ranks}
    said = last_words(f"{ranks[rank].stdout}\n{ranks[rank].stderr}")
    told = {*progress.running, rank}
    return EarlyEnd(
        "Crashed",
        f"rank {rank} crashed: {why}",
        frozenset([rank]),
        "crashed",
        by_itself=True,
        seconds=seconds,
        sections=[(f"last words of rank {rank}", said)],
        output={one: text for one, text in output.items() if one in told},
    )


def blamed(
    result: Result, gone: Sequence[int], output: Mapping[int, Iterable[str]]
) -> tuple[int, str]:
    """The rank to blame for a crash, and what became of it.

    Args:
        result: of the job.
        gone: the ranks whose processes ended by themselves.
        output: what each printed in the test: pytest keeps it from the launcher.

    """
    ranks = {one.rank: one for one in result.ranks}
    cause = result.root_cause
    failed = [one.rank for one in result.ranks if one.outcome == "failed"]
    if cause is not None and cause.rank is not None:
        failed.insert(0, cause.rank)
    # The launcher takes those that JAX has aborted for failures, and not one that left with 0.
    own = [rank for rank in failed if not says_ended_by_jax("".join(output[rank]))]
    left = [rank for rank in gone if ranks[rank].exit_status == 0]
    some = left if left and (not own or own[0] not in gone) else own or failed or gone
    rank = some[0]
    if ranks[rank].exit_status == 0:
        return rank, "exit status 0, as by os._exit(0)"
    alike = cause.ranks if cause is not None and cause.rank == rank else ()
    same = f" ({these_ranks(alike)} did)" if len(alike) > 1 else ""
    return rank, ranks[rank].message + same


def last_words(text: str) -> list[str]:
    """The last lines of a rank, without pytest's calls below the test's in faulthandler's dump."""
    kept = []
    below = False
    for line in without_noise(text.splitlines())[0]:
        is_call = line.startswith("  File ")
        below = is_call and (below or any(folder in line for folder in _BELOW))
        if not below and not line.startswith("Extension modules: "):
            kept.append(line)
    return "\n".join(kept[-_MOST_LINES:]).strip().splitlines()


def stacks(said: Sequence[str], *, hints: bool) -> list[str]:
    """The launcher's account of where ranks are, without those that wait for the next test.

    Args:
        said: its lines, of which the first is a title.
        hints: with what may explain a hang.

    """
    parts: list[list[str]] = []
    for line in said[1:]:
        if line.startswith("  ") and parts:
            parts[-1].append(line)
        elif not line.startswith("hint: ") or (hints and " -x " not in line):
            parts.append([line])
    return [line for part in parts for line in _part(*part)]


def _part(name: str, *calls: str) -> Iterator[str]:
    """A stack down to the test's own calls, or one line about all ranks."""
    users = [at for at, call in enumerate(calls, 1) if call.startswith(_USERS)]
    if users or not any(_IDLE in call for call in calls):
        yield name.removesuffix(":").partition(" (pid ")[0] + ":" if calls else name
        yield from calls[: max(users, default=None)]
