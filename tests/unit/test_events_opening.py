"""The argument of --events: which file stays as it is, and who else gets a descriptor."""

import os
from pathlib import Path

import pytest

from mcjax_launch.journal.opening import EventsTarget, parse_descriptor

WRONG_COMMAND_LINE, FAILED = 2, 1


@pytest.mark.parametrize(
    ("content", "status", "is_spared"),
    [
        (None, WRONG_COMMAND_LINE, True),
        (None, FAILED, False),
        ("", FAILED, False),
        ('{"event": "job"}\n', FAILED, True),
        ('{"event": "job"}\n', WRONG_COMMAND_LINE, True),
    ],
)
def test_file_of_a_run_that_could_not_begin_is_spared(
    tmp_path: Path, content: str | None, status: int, is_spared: bool
) -> None:
    """An earlier run's events are, and after a wrong command line no file is made."""
    file = tmp_path / "events.jsonl"
    if content is not None:
        file.write_text(content)
    assert EventsTarget(str(file), print).spares_file(status) == is_spared
    assert file.exists() == (content is not None)


def test_descriptor_is_not_passed_on_to_ranks(tmp_path: Path) -> None:
    """A reader would wait for the end of a pipe that a rank's child holds."""
    fd = os.open(tmp_path / "events", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(fd, True)
    target = EventsTarget(f"fd:{fd}", print)
    assert (parse_descriptor(f"fd:{fd}"), target.open()) == (fd, fd)
    assert not os.get_inheritable(fd)
    assert not target.spares_file(WRONG_COMMAND_LINE)
    os.close(fd)
