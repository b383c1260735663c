"""The summary where Kubernetes keeps it after a pod's end: its container's termination message."""

from mcjax_launch.diagnosis.attempt import Attempt

# What the kubelet keeps of it.
_MOST_BYTES = 4096


class TerminationMessage:
    """Writes the last summary there, if the run has failed.

    Args:
        place: of the file.

    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._lines: tuple[str, ...] = ()

    def ended(self, attempt: Attempt) -> None:
        """Keep its summary."""
        self._lines = attempt.summary.lines

    def over(self, status: int, end: str) -> None:
        """Write it; what is too long loses its last lines."""
        if status == 0:
            return
        text = fitting(self._lines or (end,))
        try:
            with open(self._place, "wb") as file:
                file.write(text)
        except OSError:  # all of it is in the log too
            return


def fitting(lines: tuple[str, ...]) -> bytes:
    """As many lines as fit, the first ones; of a first one that is too long, its beginning."""
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) <= _MOST_BYTES:
        return text
    whole, newline, _ = text[: _MOST_BYTES + 1].rpartition(b"\n")
    if newline:
        return whole
    return text[:_MOST_BYTES].decode("utf-8", "ignore").encode()
