"""Rules on the tests that ranks run: a rank that fails a test, or runs others, leaves the rest."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.jax_messages.lost_peer import is_of_lost_peer
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.headline import extract_headline
from mcjax_launch.ranks import format_count, format_ranks, group_by_key
from mcjax_launch.wording import format_names, format_rough_duration

# Groups of ranks to name.
_MOST = 4


def failed_test(view: View) -> Iterator[Finding]:
    """Find the first failed test of each rank: the rank went on before the others had."""
    failed = group_by_key(
        ((report[0].test, extract_headline(raised), raised.where), (run.process_id, report[1]))
        for run in view.runs
        if (report := run.process.failed_test) is not None
        and not is_of_lost_peer((raised := report[0].raised).exception, raised.summary)
    )
    for (test, headline, where), those in list(failed.items())[:_MOST]:
        if test in view.said:
            continue
        ranks = tuple(rank for rank, _ in those)
        ago = format_rough_duration(max(view.now - min(at for _, at in those), 0.0))
        when = f"{ago} {'before' if view.first is not None else 'ago'}"
        place = f", at {where}" if where else ""
        words = f"{view.format_ranks(ranks)} failed in {test} {when}: {headline}{place}"
        yield Finding(("failed test", test, ranks), words, ranks)


def other_tests(view: View) -> Iterator[Finding]:
    """Find ranks of the JAX job that run other tests than others, or in another order."""
    groups = group_by_key(
        (tests, run.process_id)
        for run in view.runs
        if (tests := run.process.tests) is not None and run.membership.call is not None
    )
    if len(groups) < 2:
        return
    parts = [
        f"{format_count(tests.count, 'test')} in {format_ranks(ranks)} (first {tests.first})"
        for tests, ranks in groups.items()
    ]
    words = (
        f"the ranks run different tests, or run them in different orders: "
        f"{format_names(parts, _MOST)}; all ranks need the same order: give them one seed, as with "
        "--randomly-seed=1, or use -p no:randomly"
    )
    fewest: list[int] = min(groups.values(), key=len)
    yield Finding("other tests", words, tuple(fewest))
