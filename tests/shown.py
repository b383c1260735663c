"""What the console shows of ranks that write a lot."""

from collections.abc import Sequence


def check_whole(shown: Sequence[str], written: Sequence[str]) -> None:
    """Fail unless all lines that a rank wrote are shown, whole and in order.

    On a busy machine the rest of a line may come so late that its beginning is shown first, as a
    prompt is, and is interrupted by another rank; then the line is shown once more, whole.
    """
    at, beginnings = 0, 0
    for line in shown:
        assert at < len(written), f"{line!r} after the end"
        if line == written[at]:
            at += 1
        else:
            assert written[at].startswith(line), f"{line!r} instead of {written[at]!r}"
            beginnings += 1
    assert at == len(written), f"{len(written) - at} of {len(written)} lines are missing"
    assert beginnings <= len(written) // 100  # else lines do not wait for their ends at all
