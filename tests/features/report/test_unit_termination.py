"""What is left of a pod that has failed."""

from pathlib import Path

from mcjax_launch.features.report.termination import TerminationMessage, select_fitting_lines
from mcjax_launch.journal.attempt import Attempt, JobOutcome
from mcjax_launch.journal.summary import Summary


def after(place: Path, status: int, *summaries: tuple[str, ...]) -> str:
    place.touch()
    reader = TerminationMessage(str(place))
    for restart, lines in enumerate(summaries):
        summary = Summary(ending=None, lines=lines)  # type: ignore[arg-type]
        attempt = Attempt(restart, ("h",), 1.0, None, summary)  # type: ignore[arg-type]
        reader.on_attempt(attempt, 0.0)
    reader.on_job_outcome(JobOutcome(status, "the end in a line"), 0.0)
    return place.read_text()


def test_last_summary_is_written(tmp_path: Path) -> None:
    lines = ("rank 3 failed: exit status 7", "the others were ended")
    assert after(tmp_path / "log", 7, ("an earlier one",), lines) == "\n".join(lines)


def test_success_writes_no_message(tmp_path: Path) -> None:
    assert after(tmp_path / "log", 0, ("attempt 1: rank 3 failed",)) == ""


def test_job_that_did_not_start_has_a_message(tmp_path: Path) -> None:
    assert after(tmp_path / "log", 124) == "the end in a line"


def test_unwritable_message_file_is_no_error(tmp_path: Path) -> None:
    reader = TerminationMessage(str(tmp_path / "no" / "folder"))
    reader.on_job_outcome(JobOutcome(1, "the end"), 0.0)


def test_message_is_cut_to_its_maximum() -> None:
    kept = {("a" * 4096,): 4096, ("a" * 4095, "b"): 4095, ("a" * 4094, "b"): 4096}
    kept |= {("a" * 5000,): 4096, ("ä" * 5000,): 4096, ("a" + "ä" * 5000,): 4095}
    kept |= {("a", "b" * 5000): 1, ("\udce4",): 6}
    assert {lines: len(select_fitting_lines(lines)) for lines in kept} == kept
    assert select_fitting_lines(("a" + "ä" * 5000,)).decode()
