"""What a test in ranks cannot have, and what to do instead."""

from collections.abc import Sequence

import pytest

from mcjax_launch.pytest_plugin import marks

# By the names that pytest's options have inside.
_OPTIONS = {
    "usepdb": "--pdb",
    "trace": "--trace",
    "setuponly": "--setup-only",
}


def refuse(options: object, items: Sequence[pytest.Item]) -> None:
    """Look whether pytest can do as it was asked to with these tests, which are marked.

    Raises:
        pytest.UsageError: it cannot, or a mark makes no sense.

    """
    shapes = [marked.shape for item in items if (marked := marks.read(item)) is not None]
    for name, option in _OPTIONS.items():
        if getattr(options, name, False) and not getattr(options, "collectonly", False):
            raise pytest.UsageError(
                f"{option} does not reach the ranks of tests marked mcjax: leave them out with "
                f"-m 'not mcjax', or run pytest itself in the ranks, one shape at a time: "
                f"{shapes[0].command} -m pytest {option} {items[0].nodeid}"
            )
