"""What a test in ranks cannot have, and what to do instead."""

import pytest

from mcjax_launch.pytest_plugin.marks import Shape

NO_BREAKPOINT = (
    "breakpoint() needs a terminal, which the ranks of a test do not have: run pytest itself in "
    "the ranks, as `mcjax-launch -n 2 -d 1 -m pytest -k TEST` with the test's numbers"
)
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
            instead = (
                "; debug it with "
                f"`mcjax-launch -n {shape.processes} -d {shape.cpu_devices} -m pytest {option} ...`"
                if option != "--setup-only"
                else ""
            )
            return (
                f"{option} does not reach the ranks of a test marked mcjax, such as {item.nodeid}: "
                f"leave those out with -m 'not mcjax'{instead}"
            )
    return None
