"""Check what the console shows of ranks that write a lot."""

from collections.abc import Sequence


def check_whole(shown: Sequence[str], written: Sequence[str]) -> None:
    """Fail unless all lines that a rank wrote are shown, whole and in order.

    On a busy machine the rest of a line may come so late that its beginning is shown first, as a
    prompt is, and is interrupted by another rank; then the line is shown once more, whole. Of a
    beginning only the newline may be missing.
    """
    at, beginnings = 0, 0
    for line in shown:
        awaited = written[at] if at < len(written) else None
        if line == awaited:
            at += 1
            continue
        is_beginning = awaited is not None and awaited.startswith(line)
        is_shown_again = at > 0 and line == written[at - 1]
        assert is_beginning or is_shown_again, f"{line!r} instead of {awaited!r}"
        beginnings += 1
    assert at == len(written), f"{len(written) - at} of {len(written)} lines are missing"
    assert beginnings <= len(written) // 100  # else lines do not wait for their ends at all
