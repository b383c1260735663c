"""Words for the first difference between the programs that ranks have run in order; pure."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.ranks import format_count, format_ranks
from mcjax_launch.runs.sequences import Deviation, DeviationKind, Difference, ProgramSequences


def describe_differences(sequences: ProgramSequences) -> list[str]:
    """Return a line for each mesh whose ranks differ, and each way in which ranks deviate."""
    return [line for _, difference in sequences.differences for line in describe(difference)]


def describe(difference: Difference) -> Iterator[str]:
    """Yield a line for each way in which ranks deviate from the usual program."""
    for deviation in difference.deviations:
        yield _describe_deviation(difference, deviation)


def _describe_deviation(difference: Difference, deviation: Deviation) -> str:
    usual, others = difference.usual, format_ranks(difference.ranks)
    who, own = format_ranks(deviation.ranks), deviation.program
    here = f"program {difference.number:,} of this mesh{_format_lost(difference)}"
    skipped, extra = _format_more(deviation.skipped), _format_more(deviation.extra)
    match deviation.kind:
        case DeviationKind.SKIPPED:
            return f"{who} skipped {usual}{skipped} ({here}): {others} ran it"
        case DeviationKind.ENDED:
            return f"{who} ended without {usual} ({here}): {others} ran it"
        case DeviationKind.REPEATED:
            return f"{who} repeated {own}{extra} ({here}): {others} ran {usual}"
        case DeviationKind.SKIPPED_OR_REPEATED:
            did = f"skipped {usual}{skipped}, or repeated {own}{extra}"
            return f"{who} {did} ({here}): {others} ran {usual.title}"
        case DeviationKind.EXTRA:
            ran = f"{'they' if len(difference.ranks) > 1 else 'it'} ran {usual}"
            return f"{who} ran {own}{extra}, which {others} did not run ({here}): {ran}"
        case DeviationKind.SWAPPED:
            return f"{who} ran {own} before {usual} ({here}): {others} ran them in the other order"
        case DeviationKind.RESHAPED:
            return f"{who} ran {own} with an argument of another shape than {others} ({here})"
        case _:
            return f"{who} ran {own} in place of {usual} ({here}), which {others} ran"


def _format_lost(difference: Difference) -> str:
    if difference.lost is None:
        return ""
    first, last = difference.lost
    return f"; maybe one before: {first:,} to {last:,} ran too fast to be compared"


def _format_more(count: int) -> str:
    """Return words for the programs after the first of `count`."""
    return f" and {format_count(count - 1, 'more program')}" if count > 1 else ""
