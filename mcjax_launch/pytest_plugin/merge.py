"""One report for each phase of a test from those of all its ranks; pure."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pytest

from mcjax_launch.jax_messages.lost_peer import is_of_lost_peer
from mcjax_launch.jax_messages.noise import without_noise
from mcjax_launch.pytest_plugin import reprs
from mcjax_launch.ranks import these_ranks

_PHASES = ("setup", "call", "teardown")
#: The name of a crash.
CRASHED = "Crashed"
_STRICT = "[XPASS(strict)]"


class Kind(enum.Enum):
    """What became of a phase in a rank."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "failed as expected"
    XPASSED = "passed unexpectedly"
    XPASSED_STRICTLY = "passed unexpectedly (strict)"


def kind(report: pytest.TestReport) -> Kind:
    """What a report says, in one word."""
    expected = hasattr(report, "wasxfail")
    if report.passed:
        return Kind.XPASSED if expected else Kind.PASSED
    if report.skipped:
        return Kind.XFAILED if expected else Kind.SKIPPED
    strictly = isinstance(report.longrepr, str) and report.longrepr.startswith(_STRICT)
    return Kind.XPASSED_STRICTLY if strictly else Kind.FAILED


@dataclass(frozen=True)
class Item:
    """The test, as reports name it.

    Args:
        expected: the reason of its xfail mark, if any failure is expected; else None.

    """

    nodeid: str
    location: tuple[str, int | None, str]
    keywords: Mapping[str, Literal[1]]
    expected: Callable[[], str | None] = lambda: None


@dataclass(frozen=True)
class Ended:
    """Why and how a test was ended before all ranks were through.

    Args:
        name: stands where the name of an exception does.
        headline: what happened, in one line.
        ranks: that were ended, or ended by themselves.
        what: what became of them, after `rank 1 `.
        by_itself: nothing in the ranks' reports explains it.
        stacks: of all ranks, in lines.
        said: last words of the rank that crashed, or why ranks could not be started.
        output: stdout and stderr of the phase that was under way, by rank.

    """

    name: str
    headline: str
    ranks: frozenset[int]
    what: str
    by_itself: bool
    stacks: Sequence[str] = ()
    said: Sequence[str] = ()
    output: Mapping[int, tuple[str, str]] | None = None


@dataclass(frozen=True)
class Results:
    """All that is known of a test.

    Args:
        reports: by rank, in the order in which they came.
        troubled: the ranks that reported no pass, the first one first.
        ended: None if all ranks came through.
        seconds: that it took until then, if not.

    """

    reports: Mapping[int, Sequence[pytest.TestReport]]
    troubled: Sequence[int]
    ended: Ended | None = None
    seconds: float = 0.0


def merged(item: Item, results: Results) -> list[pytest.TestReport]:
    """The reports of a test, of which the last is that of its teardown."""
    reports = _subtests(results)
    ended_in = _ended_in(results)
    for when in _PHASES:
        by_rank = _of_phase(results.reports, when)
        incomplete = when == ended_in
        if not by_rank and not incomplete:
            continue
        report = _Phase(item, results, when, by_rank, incomplete).report()
        reports.append(report)
        if when == "teardown":
            break
        if incomplete or (when == "setup" and not report.passed):
            reports.append(_teardown(item, results, incomplete))
            break
    return reports


def _ended_in(results: Results) -> str | None:
    """The phase to which the early end of the test belongs: a failure's, or that of the ranks."""
    if results.ended is None:
        return None
    ranks = results.ended.ranks
    for when in _PHASES:
        by_rank = _of_phase(results.reports, when)
        failed = not all(report.passed for report in by_rank.values())
        if failed or not ranks or not ranks <= by_rank.keys():
            return when
    return _PHASES[-1]


def _of_phase(
    reports: Mapping[int, Sequence[pytest.TestReport]], when: str
) -> dict[int, pytest.TestReport]:
    return {
        rank: report
        for rank, all_of_rank in sorted(reports.items())
        for report in all_of_rank
        if report.when == when and type(report) is pytest.TestReport
    }


def _subtests(results: Results) -> list[pytest.TestReport]:
    """Pytest's subtests: each is shown as the first rank that has failed in it has reported it."""
    by_name: dict[str, dict[int, pytest.TestReport]] = {}
    for rank, reports in sorted(results.reports.items()):
        for report in reports:
            if type(report) is not pytest.TestReport:
                by_name.setdefault(str(getattr(report, "context", "")), {})[rank] = report
    found = []
    for same in by_name.values():
        failed = [rank for rank, report in same.items() if report.failed]
        report = same[failed[0] if failed else next(iter(same))]
        if failed:
            reprs.name_ranks(report.longrepr, these_ranks(failed))
        report.sections = [section for _, section in _sections(same)]
        found.append(report)
    return found


def _teardown(item: Item, results: Results, incomplete: bool) -> pytest.TestReport:
    """The last report of a test that did not come to its call: JUnit's file needs one."""
    by_rank = _of_phase(results.reports, "teardown")
    if by_rank and not incomplete:
        return _Phase(item, results, "teardown", by_rank, False).report()
    return _new(item, "teardown", "passed", None)


def _new(item: Item, when: str, outcome: str, longrepr: object) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=item.keywords,
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=longrepr,  # type: ignore[arg-type]
        when=when,  # type: ignore[arg-type]
    )


class _Phase:
    """One phase of a test.

    Args:
        by_rank: the reports of this phase.
        incomplete: the test was ended in it.

    """

    def __init__(
        self,
        item: Item,
        results: Results,
        when: str,
        by_rank: Mapping[int, pytest.TestReport],
        incomplete: bool,
    ) -> None:
        self._item = item
        self._results = results
        self._when = when
        self._by_rank = by_rank
        self._ended = results.ended if incomplete else None
        self._kinds = {rank: kind(report) for rank, report in by_rank.items()}

    def report(self) -> pytest.TestReport:
        """What pytest is given."""
        report = self._judged()
        sections = [*_sections(self._by_rank), *self._cut_off()]
        report.sections = [section for _, section in sorted(sections, key=lambda one: one[0])]
        report.duration = max(_longest(self._by_rank), self._until_its_end())
        report.start = min((one.start for one in self._by_rank.values()), default=0.0)
        report.stop = max((one.stop for one in self._by_rank.values()), default=0.0)
        report.user_properties = list(
            dict.fromkeys(pair for one in self._by_rank.values() for pair in one.user_properties)
        )
        return report

    def _until_its_end(self) -> float:
        """How long the phase took in which the test was ended, which no rank has reported."""
        if self._ended is None:
            return 0.0
        before = _PHASES[: _PHASES.index(self._when)]
        by_phase = [_of_phase(self._results.reports, when) for when in before]
        return self._results.seconds - sum(map(_longest, by_phase))

    def _judged(self) -> pytest.TestReport:
        kinds = set(self._kinds.values())
        if self._ended is not None and self._is_cause(self._ended):
            return self._failure(self._ended.name, self._ended.headline)
        if Kind.FAILED in kinds:
            return self._shown(Kind.FAILED)
        if Kind.XFAILED in kinds:
            return self._xfailed()
        if Kind.SKIPPED in kinds and (kinds != {Kind.SKIPPED} or self._ended is not None):
            return self._failure("Disagreement", f"the ranks disagree: {self._in_words()}")
        if self._ended is not None:
            return self._failure(self._ended.name, self._ended.headline)
        if Kind.XPASSED_STRICTLY in kinds:
            return self._shown(Kind.XPASSED_STRICTLY)
        return self._by_rank[min(self._by_rank)]

    def _is_cause(self, ended: Ended) -> bool:
        """Whether the test's early end is what went wrong, and failures follow from it."""
        failed = [rank for rank, one in self._kinds.items() if one is Kind.FAILED]
        return ended.by_itself and all(_lost_peer(self._by_rank[rank]) for rank in failed)

    def _shown(self, shown: Kind) -> pytest.TestReport:
        """The report of the first rank that failed, and what became of the others."""
        first = next(rank for rank in self._results.troubled if self._kinds.get(rank) is shown)
        report = self._by_rank[first]
        same = [rank for rank in self._kinds if self._sort(rank) == self._sort(first)]
        report = self._by_rank[min(same)]
        account = self._account(same) if shown is Kind.FAILED else []
        report.longrepr = reprs.with_sections(report.longrepr, [("ranks", account), *self._more()])
        reprs.name_ranks(report.longrepr, these_ranks(same))
        return report

    def _xfailed(self) -> pytest.TestReport:
        ranks = [rank for rank, one in self._kinds.items() if one is Kind.XFAILED]
        report = self._by_rank[ranks[0]]
        if len(ranks) < len(self._results.reports):
            report.wasxfail = f"{report.wasxfail} ({self._in_words()})".lstrip()
        return report

    def _failure(self, name: str, headline: str) -> pytest.TestReport:
        expected = self._item.expected()
        if expected is not None:
            report = _new(self._item, self._when, "skipped", (*self._item.location[:2], headline))
            report.wasxfail = f"{expected} ({headline})".lstrip()
            return report
        longrepr = reprs.of_words(name, headline, self._item.location)
        account = [line for line in self._account([]) if line not in headline]
        sections = [("ranks", account), *self._more()]
        longrepr = reprs.with_sections(longrepr, sections)
        return _new(self._item, self._when, "failed", longrepr)

    # --- words ---

    def _sort(self, rank: int) -> tuple[str, str, str]:
        """What is equal for ranks that are told of together."""
        report = self._by_rank[rank]
        passed = self._kinds[rank] is Kind.PASSED
        place = "" if passed else reprs.place(report)
        return self._kinds[rank].value, place, "" if passed else reprs.headline(report)

    def _account(self, above: Sequence[int]) -> list[str]:
        """What became of all ranks: those whose traceback is above, and then the others."""
        everybody = len(self._results.reports)
        if above and len(above) == everybody:
            return [f"all {everybody} ranks failed alike"] if everybody > 1 else []
        lines = [f"{these_ranks(above)} failed: see above"] if above else []
        groups: dict[tuple[str, str, str], list[int]] = {}
        for rank in self._kinds:
            if rank not in above and not self._was_ended_later(rank):
                groups.setdefault(self._sort(rank), []).append(rank)
        for (what, place, headline), ranks in groups.items():
            where = f" ({place})" if place else ""
            lines.append(
                f"{these_ranks(ranks)} {what}" + (f": {headline}{where}" if headline else "")
            )
        if self._ended is not None and self._ended.ranks:
            lines.append(f"{these_ranks(self._ended.ranks)} {self._ended.what}")
        return lines

    def _was_ended_later(self, rank: int) -> bool:
        """Whether a rank came through this phase, but not through the test."""
        ended = self._ended is not None and rank in self._ended.ranks
        return ended and self._kinds[rank] is Kind.PASSED

    def _in_words(self) -> str:
        groups: dict[str, list[int]] = {}
        for rank, one in self._kinds.items():
            if not self._was_ended_later(rank):
                groups.setdefault(one.value, []).append(rank)
        if self._ended is not None:
            groups[self._ended.what] = sorted(self._ended.ranks)
        return ", ".join(f"{these_ranks(ranks)} {what}" for what, ranks in groups.items())

    def _more(self) -> list[tuple[str, Sequence[str]]]:
        if self._ended is None:
            return []
        crashed = self._ended.name == CRASHED
        last_words = f"last words of {these_ranks(self._ended.ranks)}" if crashed else "why"
        return [
            ("stacks, innermost call first", self._ended.stacks),
            (last_words, self._ended.said),
        ]

    def _cut_off(self) -> Iterable[tuple[int, tuple[str, str]]]:
        """The output of ranks that did not come to report it."""
        if self._ended is None or self._ended.output is None:
            return
        for rank, streams in sorted(self._ended.output.items()):
            for name, text in zip(("stdout", "stderr"), streams, strict=True):
                if kept := _without_noise(text):
                    yield rank, (f"Captured {name} {self._when}, rank {rank}", kept)


def _longest(by_rank: Mapping[int, pytest.TestReport]) -> float:
    return max((report.duration for report in by_rank.values()), default=0.0)


def _sections(by_rank: Mapping[int, pytest.TestReport]) -> list[tuple[int, tuple[str, str]]]:
    """The output of each rank, by itself."""
    return [
        (rank, (f"{name}, rank {rank}", kept))
        for rank, report in sorted(by_rank.items())
        for name, text in report.sections
        if (kept := _without_noise(text))
    ]


def _without_noise(text: str) -> str:
    """Output without the lines of JAX's that carry no news."""
    lines, hidden = without_noise(text.splitlines())
    return text if not hidden else "".join(f"{line}\n" for line in lines)


def _lost_peer(report: pytest.TestReport) -> bool:
    """Whether a failure is JAX's about the loss of another rank."""
    crash = getattr(report.longrepr, "reprcrash", None)
    name, _, message = (crash.message if crash is not None else "").partition(":")
    return is_of_lost_peer(name.rpartition(".")[2], message)
