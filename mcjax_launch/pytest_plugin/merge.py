"""One report for each phase of a test, merged from the reports of all its ranks; pure."""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from _pytest.skipping import evaluate_xfail_marks

from mcjax_launch.jax_messages.line_classifier import without_noise
from mcjax_launch.jax_messages.lost_peer import is_of_lost_peer
from mcjax_launch.pytest_plugin import reprs
from mcjax_launch.pytest_plugin.progress import RanksProgress
from mcjax_launch.ranks import format_all_ranks, format_ranks

_PHASES = ("setup", "call", "teardown")
_STRICT = "[XPASS(strict)]"


class PhaseOutcome(enum.Enum):
    """Outcome of a phase in a rank."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "failed as expected"
    XPASSED = "passed unexpectedly"
    XPASSED_STRICTLY = "passed unexpectedly (strict)"


def _get_outcome(report: pytest.TestReport) -> PhaseOutcome:
    expected = hasattr(report, "wasxfail")
    if report.passed:
        return PhaseOutcome.XPASSED if expected else PhaseOutcome.PASSED
    if report.skipped:
        return PhaseOutcome.XFAILED if expected else PhaseOutcome.SKIPPED
    strictly = isinstance(report.longrepr, str) and report.longrepr.startswith(_STRICT)
    return PhaseOutcome.XPASSED_STRICTLY if strictly else PhaseOutcome.FAILED


class EarlyEnd(NamedTuple):
    """End of a test before all ranks have finished it.

    Args:
        name: name shown in place of an exception's, such as `Timeout`.
        headline: description of the end, in one line.
        ranks: ranks that were ended, or that ended by themselves.
        what: description of their end, worded to follow `rank 1 `.
        by_itself: True if the ranks' reports do not explain the end, as after a crash.
        seconds: time that the test had run.
        sections: lines to show below the headline, each section under its name.
        output: stdout and stderr of the phase that was under way, by rank.

    """

    name: str
    headline: str
    ranks: frozenset[int]
    what: str
    by_itself: bool
    seconds: float
    sections: Sequence[tuple[str, Sequence[str]]]
    output: Mapping[int, Sequence[str]]


def merge_reports(
    item: pytest.Item, progress: RanksProgress, ended: EarlyEnd | None
) -> list[pytest.TestReport]:
    """Return the reports of a test; the last is always the teardown's.

    Args:
        item: the test.
        progress: progress of the test, with its ranks' reports.
        ended: early end of the test; None if all ranks finished it.

    """
    phases = {when: _select_reports(progress, when) for when in _PHASES}
    ended_in = _find_end_phase(phases, ended.ranks) if ended is not None else None
    merged: list[pytest.TestReport] = []
    for when, by_rank in phases.items():
        is_last = when == ended_in
        without_setup = when == "call" and bool(merged) and not merged[-1].passed
        if without_setup or not (by_rank or is_last):
            continue
        report = _Phase(item, progress, when, by_rank, ended if is_last else None).make_report()
        if is_last and ended is not None:  # no rank could say how long this phase took
            rest = ended.seconds - sum(earlier.duration for earlier in merged)
            report.duration = max(report.duration, rest)
        merged.append(report)
        if is_last:
            break
    if not merged or merged[-1].when != "teardown":  # JUnit's file needs one
        merged.append(_make_report(item, "teardown", "passed", None))
    return _merge_subtests(progress) + merged


def _find_end_phase(
    phases: Mapping[str, Mapping[int, pytest.TestReport]], ranks: frozenset[int]
) -> str:
    """Return the first phase in which a rank failed, or that not all of `ranks` have reported."""
    for when, by_rank in phases.items():
        failed = not all(report.passed for report in by_rank.values())
        if failed or not ranks or not ranks <= by_rank.keys():
            return when
    return _PHASES[-1]


def _select_reports(progress: RanksProgress, when: str) -> dict[int, pytest.TestReport]:
    return {
        rank: report
        for rank, all_of_rank in sorted(progress.reports.items())
        for report in all_of_rank
        if report.when == when and type(report) is pytest.TestReport
    }


def _merge_subtests(progress: RanksProgress) -> list[pytest.TestReport]:
    """Return one report per subtest of pytest: the first failed rank's, if any rank failed."""
    by_name: dict[str, dict[int, pytest.TestReport]] = {}
    for rank, reports in sorted(progress.reports.items()):
        for report in reports:
            if type(report) is not pytest.TestReport:
                by_name.setdefault(str(getattr(report, "context", "")), {})[rank] = report
    found = []
    for same in by_name.values():
        failed = [rank for rank, report in same.items() if report.failed]
        report = same[failed[0] if failed else next(iter(same))]
        if failed:
            reprs.name_ranks(report.longrepr, format_ranks(failed))
        report.sections = _make_sections({rank: own.sections for rank, own in same.items()})
        found.append(report)
    return found


def _make_report(item: pytest.Item, when: str, outcome: str, longrepr: object) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=longrepr,  # type: ignore[arg-type]
        when=when,  # type: ignore[arg-type]
    )


def _find_xfail_reason(item: pytest.Item) -> str | None:
    """Return the reason of a test's xfail mark; None if the mark does not cover all failures."""
    xfail = evaluate_xfail_marks(item)
    if xfail is None or xfail.raises is not None or item.config.option.runxfail:
        return None
    return xfail.reason


class _Phase:
    """One phase of a test.

    Args:
        item: the test.
        progress: the reports of the whole test.
        when: name of the phase: setup, call or teardown.
        by_rank: ranks' reports of this phase.
        ended: early end of the test in this phase; None if it did not end here.

    """

    def __init__(
        self,
        item: pytest.Item,
        progress: RanksProgress,
        when: str,
        by_rank: Mapping[int, pytest.TestReport],
        ended: EarlyEnd | None,
    ) -> None:
        self._item = item
        self._progress = progress
        self._when = when
        self._by_rank = by_rank
        self._ended = ended
        self._outcomes = {rank: _get_outcome(report) for rank, report in by_rank.items()}

    def make_report(self) -> pytest.TestReport:
        """Return the report of this phase for pytest."""
        report = self._merge_outcomes()
        reports = self._by_rank.values()
        report.sections = _make_sections(self._collect_output())
        report.duration = max((own.duration for own in reports), default=0.0)
        report.start = min((own.start for own in reports), default=0.0)
        report.stop = max((own.stop for own in reports), default=0.0)
        properties = [pair for own in reports for pair in own.user_properties]
        report.user_properties = list(dict.fromkeys(properties))
        return report

    def _merge_outcomes(self) -> pytest.TestReport:
        outcomes, ended = set(self._outcomes.values()), self._ended
        if ended is not None and self._is_cause(ended):
            return self._make_failure_report(ended.name, ended.headline)
        if PhaseOutcome.FAILED in outcomes:
            return self._select_report(PhaseOutcome.FAILED)
        if PhaseOutcome.XFAILED in outcomes:
            return self._select_xfail_report()
        if PhaseOutcome.SKIPPED in outcomes and (len(outcomes) > 1 or ended is not None):
            told = ", ".join(self._describe_groups(lambda rank: self._outcomes[rank].value))
            return self._make_failure_report("Disagreement", f"the ranks disagree: {told}")
        if ended is not None:
            return self._make_failure_report(ended.name, ended.headline)
        if PhaseOutcome.XPASSED_STRICTLY in outcomes:
            return self._select_report(PhaseOutcome.XPASSED_STRICTLY)
        return self._by_rank[min(self._by_rank)]

    def _is_cause(self, ended: EarlyEnd) -> bool:
        """Return whether the test's early end is the cause of the failures that ranks reported."""
        failed = [rank for rank, own in self._outcomes.items() if own is PhaseOutcome.FAILED]
        return ended.by_itself and all(_says_lost_peer(self._by_rank[rank]) for rank in failed)

    def _select_report(self, shown: PhaseOutcome) -> pytest.TestReport:
        """Return the report of the first rank with this outcome, with an account of all ranks."""
        first = next(rank for rank in self._progress.troubled if self._outcomes.get(rank) is shown)
        same = [
            rank
            for rank in self._outcomes
            if self._describe_outcome(rank) == self._describe_outcome(first)
        ]
        everybody = len(self._progress.reports)
        if shown is not PhaseOutcome.FAILED or everybody == 1:
            account = []
        elif len(same) == everybody:
            account = [f"{format_all_ranks(everybody)} failed alike"]
        else:
            others = self._describe_groups(self._describe_outcome, without=same)
            account = [f"{format_ranks(same)} failed: see above", *others]
        report = self._by_rank[min(same)]
        report.longrepr = self._with_sections(report.longrepr, account)
        reprs.name_ranks(report.longrepr, format_ranks(same))
        return report

    def _select_xfail_report(self) -> pytest.TestReport:
        ranks = [rank for rank, own in self._outcomes.items() if own is PhaseOutcome.XFAILED]
        report = self._by_rank[ranks[0]]
        if len(ranks) < len(self._progress.reports):
            told = ", ".join(self._describe_groups(lambda rank: self._outcomes[rank].value))
            report.wasxfail = f"{report.wasxfail} ({told})".lstrip()
        return report

    def _make_failure_report(self, name: str, headline: str) -> pytest.TestReport:
        expected = _find_xfail_reason(self._item)
        if expected is not None:
            report = _make_report(
                self._item, self._when, "skipped", (*self._item.location[:2], headline)
            )
            report.wasxfail = f"{expected} ({headline})".lstrip()
            return report
        longrepr = reprs.make_repr(name, headline, self._item.location)
        account = [
            line for line in self._describe_groups(self._describe_outcome) if line not in headline
        ]
        return _make_report(
            self._item, self._when, "failed", self._with_sections(longrepr, account)
        )

    def _collect_output(self) -> dict[int, list[tuple[str, str]]]:
        """Return the output of all ranks, including ranks that ended before they reported it."""
        written = {rank: list(report.sections) for rank, report in self._by_rank.items()}
        for rank, streams in (self._ended.output if self._ended is not None else {}).items():
            names = (f"Captured {stream} {self._when}" for stream in ("stdout", "stderr"))
            written.setdefault(rank, []).extend(zip(names, streams, strict=False))
        return written

    # --- words ---

    def _describe_outcome(self, rank: int) -> str:
        """Return a rank's outcome in words, with the headline and position of its error, if any."""
        report, outcome = self._by_rank[rank], self._outcomes[rank]
        headline = reprs.get_headline(report)
        if outcome is PhaseOutcome.PASSED or not headline:
            return outcome.value
        place = reprs.format_position(report)
        return f"{outcome.value}: {headline}" + (f" ({place})" if place else "")

    def _describe_groups(
        self, what: Callable[[int], str], without: Sequence[int] = ()
    ) -> list[str]:
        """Return a line for each group of ranks that `what` describes alike.

        A further line names all ranks whose test was ended early. If they passed this phase,
        they are left out of the groups.

        Args:
            what: function that describes a rank.
            without: ranks to leave out of the groups by `what`.

        """
        groups: dict[str, list[int]] = {}
        ended = self._ended.ranks if self._ended is not None else ()
        for rank, outcome in self._outcomes.items():
            came_through = rank in ended and outcome is PhaseOutcome.PASSED  # but not the test
            if rank not in without and not came_through:
                groups.setdefault(what(rank), []).append(rank)
        if self._ended is not None and ended:
            groups[self._ended.what] = sorted(ended)
        return [f"{format_ranks(ranks)} {told}" for told, ranks in groups.items()]

    def _with_sections(self, longrepr: Any, account: Sequence[str]) -> Any:
        more = self._ended.sections if self._ended is not None else ()
        return reprs.with_sections(longrepr, [("ranks", account), *more])


def _make_sections(written: Mapping[int, Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return the sections of all ranks, each named after its rank, without noise."""
    return [
        (f"{name}, rank {rank}", kept)
        for rank, sections in sorted(written.items())
        for name, text in sections
        if (kept := _without_noise(text))
    ]


def _without_noise(text: str) -> str:
    """Return output without JAX's lines that have no value for the user."""
    lines, hidden = without_noise(text.splitlines())
    return text if not hidden else "".join(f"{line}\n" for line in lines)


def _says_lost_peer(report: pytest.TestReport) -> bool:
    """Return whether a failure is JAX's report that another rank is gone."""
    name, _, message = reprs.get_message(report).partition(":")
    return is_of_lost_peer(name.rpartition(".")[2], message)
