"""What a test in ranks cannot have, and what to do instead."""

import pytest

from mcjax_launch.pytest_plugin.marks import Shape

# By the names that pytest's options have inside.
_OPTIONS = {
    "usepdb": "--pdb",
    "trace": "--trace",
    "setuponly": "--setup-only",
}


def refusal(options: object, item: pytest.Item, shape: Shape) -> str | None:
    """Why pytest cannot run as it was asked to, with a test that is marked; None if it can."""
    for name, option in _OPTIONS.items():
        if getattr(options, name, False):
            return (
                f"{option} does not reach the ranks of tests marked mcjax: leave them out with "
                f"-m 'not mcjax', or run pytest itself in the ranks, one shape at a time: "
                f"{shape.command} -m pytest {option} {item.nodeid}"
            )
    return None
