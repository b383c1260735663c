"""Reader of the journal that writes the kubelet's termination message."""

from mcjax_launch.journal.attempt import Attempt, JobOutcome

# The kubelet keeps no more of a termination message.
_MOST_BYTES = 4096


class TerminationMessage:
    """Reader that writes the last summary of a failed run for Kubernetes.

    Kubernetes keeps the file's text after the end of the pod.

    Args:
        place: path of the file.

    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._lines: tuple[str, ...] = ()

    def on_attempt(self, attempt: Attempt, at: float) -> None:
        """Keep the summary of an attempt."""
        self._lines = attempt.summary.lines

    def on_job_outcome(self, outcome: JobOutcome, at: float) -> None:
        """Write the last attempt's summary, else how the job has ended, if the job failed."""
        if outcome.status == 0:
            return
        text = select_fitting_lines(self._lines or (outcome.message,))
        try:
            with open(self._place, "wb") as file:
                file.write(text)
        except OSError:  # the log has the same lines
            return


def select_fitting_lines(lines: tuple[str, ...]) -> bytes:
    """Return the first lines that fit into 4096 bytes; of a longer first line, its beginning."""
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) <= _MOST_BYTES:
        return text
    whole, newline, _ = text[: _MOST_BYTES + 1].rpartition(b"\n")
    if newline:
        return whole
    return text[:_MOST_BYTES].decode("utf-8", "ignore").encode()
