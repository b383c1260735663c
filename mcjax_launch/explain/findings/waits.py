"""Rules on ranks that stand still and wait for other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.differences import OTHER_STEPS
from mcjax_launch.explain.view import View
from mcjax_launch.explain.waits.deadlock import TIMEOUT_FLAG, lacks_collective_timeout, may_act
from mcjax_launch.explain.waits.wait import find_wait
from mcjax_launch.explain.waits.words import describe_wait
from mcjax_launch.journal.facts import Finding

_CPU_COLLECTIVES = (
    "on CPU a collective with a rank that has died does not end: "
    f"-x XLA_FLAGS={TIMEOUT_FLAG}20 makes it an error, unless the program sets XLA_FLAGS itself"
)
_ONE_FOLDER = (
    "when saving, Orbax's processes wait for one another, and for what one of them creates: give "
    "all of them the same folder, on a file system that all hosts share"
)


def ranks_wait(view: View) -> Iterator[Finding]:
    """Find the ranks that wait and those they wait for; certain if it is a proven deadlock."""
    wait, positions = find_wait(view), view.positions
    if wait is None or positions is None:
        return
    words, late = describe_wait(view, wait), tuple(sorted(wait.late))
    if positions.is_whole and wait.is_deadlock and not may_act(view.state, positions.stacks):
        cure = "" if view.state.differs or not late else OTHER_STEPS
        words = f"{words}, so the job can never go on"
        yield Finding(wait.key, words, late, cure, wait.since, is_certain=True, is_final=False)
    else:
        yield Finding(wait.key, words, late, since=wait.since)


def endless_collective(view: View) -> Iterator[Finding]:
    """Advise to set a collective timeout if ranks wait on CPU after a rank has failed."""
    has_failed = view.state.has_outlived_failure
    if has_failed and find_wait(view) is not None and lacks_collective_timeout(view.state):
        yield Finding("CPU collectives", "", cure=_CPU_COLLECTIVES)


def waits_in_orbax(view: View) -> Iterator[Finding]:
    """Advise to use one shared folder if ranks wait for one another in Orbax."""
    wait = find_wait(view)
    if wait is not None and wait.with_orbax:
        yield Finding("Orbax", "", cure=_ONE_FOLDER)
