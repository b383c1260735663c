"""What is to be told of a test that was ended before all its ranks were through."""

from mcjax_launch.pytest_plugin import said
from mcjax_launch.pytest_plugin.group import Group
from mcjax_launch.pytest_plugin.merge import CRASHED, Ended
from mcjax_launch.pytest_plugin.progress import Early, Progress
from mcjax_launch.ranks import these_ranks

_LEFT = "exit status 0, as by os._exit(0)"


def ended_early(group: Group, progress: Progress, early: Early) -> Ended:
    """Find out what is to be told; the group is of no use afterwards.

    Args:
        early: why the test was ended.

    """
    if early is Early.CRASHED:
        return _crashed(group, progress)
    if early is Early.MISSING:
        return _not_collected(progress)
    running = progress.running
    was = "were" if len(running) > 1 else "was"
    if early is Early.TIMED_OUT and progress.limit is not None:
        limit = progress.limit
        what = f"{was} still running after {round(limit.seconds, 1):g} s ({limit.source})"
    else:
        what = f"{was} still running {progress.grace_s:.1f} s later, and {was} ended"
    return Ended(
        "Timeout",
        f"{these_ranks(running)} {what}",
        frozenset(running),
        what,
        by_itself=False,
        stacks=said.stacks(group.stacks(), hints=early is Early.TIMED_OUT),
        output={rank: group.output(rank) for rank in running},
    )


def _not_collected(progress: Progress) -> Ended:
    errors = next((errors for errors in progress.missing.values() if errors), ())
    why = "" if errors else ": names and parameters of tests must be the same in every process"
    ranks = these_ranks(progress.missing)
    return Ended(
        "NotCollected",
        f"{ranks} did not collect this test{why}",
        frozenset(progress.missing),
        "did not collect this test",
        by_itself=True,
        said=[line for error in errors for line in error.splitlines()],
    )


def _crashed(group: Group, progress: Progress) -> Ended:
    """What the launcher says of the rank that went first; it ends the others."""
    running = progress.running
    group.finish()  # whoever is through may save its coverage
    lines = group.wait_for_crash()
    left = said.some_left(lines)
    first = progress.gone[0], _LEFT if left else "the process is gone"
    rank, cause = said.cause(lines) or first
    if left and rank not in progress.gone:  # JAX has aborted it for the one that left
        rank, cause = first
    return Ended(
        CRASHED,
        f"rank {rank} crashed: {cause}",
        frozenset([rank]),
        "crashed",
        by_itself=True,
        said=said.of_rank(lines, rank),
        output={one: group.output(one) for one in sorted({rank, *running})},
    )
