"""Which process of a wrapped rank is its program."""

import os

import pytest

from mcjax_launch.agent.hook_server import WrappedPrograms
from mcjax_launch.agent.system import system

FRAMEWORK = "/opt/homebrew/Frameworks/Python.framework/Resources/Python.app/Contents/MacOS/Python"


@pytest.mark.parametrize(
    ("words", "is_program"),
    [
        (["/other/python3", "train.py", "--steps", "3"], True),
        (["/bin/sh", "/usr/bin/python3", "train.py", "--steps", "3"], True),
        ([FRAMEWORK, "train.py", "--steps", "3"], True),
        ([FRAMEWORK, "helper.py", "--steps", "3"], False),
        (["/usr/bin/perl", "train.py", "--steps", "3"], False),
        (["3"], False),
        ([], False),
    ],
)
def test_the_program_is_known_by_its_command(
    monkeypatch: pytest.MonkeyPatch, words: list[str], is_program: bool
) -> None:
    monkeypatch.setattr(system, "read_command", lambda pid: words)
    wrapped = WrappedPrograms({1: ["/usr/bin/python3", "train.py", "--steps", "3"]})
    assert wrapped.is_program(1, os.getpid()) == is_program
