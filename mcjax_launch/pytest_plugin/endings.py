"""What is to be told of a test that was ended before all its ranks were through."""

import re
from collections.abc import Iterable, Sequence

from mcjax_launch.pytest_plugin.group import Group
from mcjax_launch.pytest_plugin.merge import Ended
from mcjax_launch.pytest_plugin.progress import Early, Progress
from mcjax_launch.ranks import these_ranks

_OWN = "mcjax-launch: "
_FAILED = re.compile(r"ranks? [\d,-]+(?: on \S+)? failed")
# Of the summary: that the others were ended is said already, and the rest is of no use here.
_LEFT_OUT = ("hid ", "the job ran ", "the other ", "the ", "SIGTERM forwarded")
_MOST_LINES = 200


def ended_early(group: Group, progress: Progress, early: Early) -> Ended:
    """Find out what is to be told; the group is of no use afterwards.

    Args:
        early: why the test was ended.

    """
    match early:
        case Early.CRASHED:
            return _crashed(group, progress)
        case Early.MISSING:
            ranks = these_ranks(progress.missing)
            return Ended(
                f"{ranks} did not collect this test: the files, names and parameters of tests must "
                "not depend on the process",
                frozenset(progress.running),
                "did not come to an end",
                by_itself=True,
            )
        case Early.STUCK:
            what = f"did not come to an end within {progress.grace_s:.1f} s after that"
        case Early.TIMED_OUT:
            what = "did not come to an end"
    running = progress.running
    stacks = list(without_pytest(group.stacks()))
    limit = f" within {progress.limit.source}" if progress.limit is not None else ""
    return Ended(
        f"{these_ranks(running)} {what}{limit if early is Early.TIMED_OUT else ''}",
        frozenset(running),
        f"{what}{limit if early is Early.TIMED_OUT else ''}",
        by_itself=False,
        stacks=stacks,
        output={rank: group.output(rank) for rank in running},
    )


def _crashed(group: Group, progress: Progress) -> Ended:
    lost = progress.gone[:1]
    running = progress.running
    group.finish()  # whoever is through may save its coverage
    said = group.wait_for_crash()
    own = [line.removeprefix(_OWN) for line in said if line.startswith(_OWN)]
    cause = next((line for line in own if _FAILED.match(line)), None)
    headline = cause or f"{these_ranks(lost)} crashed"
    return Ended(
        headline,
        frozenset(lost),
        "crashed",
        by_itself=True,
        said=said[-_MOST_LINES:],
        output={rank: group.output(rank) for rank in sorted({*lost, *running})},
    )


def without_pytest(lines: Sequence[str]) -> Iterable[str]:
    """Stacks of the launcher's without the calls of pytest's below those of the test."""
    kept: list[str] = []
    last_of_users = 0
    for line in [*lines, ""]:
        if not line.startswith("  "):  # the next stack, or what follows them all
            del kept[last_of_users or len(kept) :]
            last_of_users = 0
            kept.append(line)
            continue
        kept.append(line)
        if line.startswith("  > "):
            last_of_users = len(kept)
    return kept[:-1]


_ = _LEFT_OUT
