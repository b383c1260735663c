"""Programs that ranks of this host are about to run for the first time, gathered; pure.

All ranks of a program reach it within a moment as a rule. Then the launcher is told once, and if
none of them is elsewhere they run it at once: nothing is left to compare. All else is the
launcher's to judge, and is handed on in the order in which each rank announced it.
"""

from __future__ import annotations

from ..protocol.messages import Reached

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..protocol.hook_messages import Program
    from .hook_server import HookServer

# What comes later is not waited for before the launcher is told of those that have come.
_TOGETHER_S = 0.05
# Programs that some ranks have not reached: with more of them the launcher judges all.
_MOST_OPEN = 1024


class _Gathering:
    """The ranks of this host that come to a program.

    Args:
        ranks: that take part.
        elsewhere: others do as well.
        due: when to tell the launcher, if some have not come.

    Attributes:
        untold: those that have come, by what each has announced.
        is_told: the launcher knows that some have come and some have not.

    """

    def __init__(self, ranks: Collection[int], elsewhere: bool, due: float) -> None:
        self.ranks = frozenset(ranks)
        self.missing = set(ranks)
        self.elsewhere = elsewhere
        self.due = due
        self.untold: dict[Program, list[int]] = {}
        self.is_told = False


class Gate:
    """Takes what ranks of this host announce, and says it to the launcher in few messages.

    Times are in time.monotonic's seconds.

    Args:
        alone: the launcher has no ranks on other hosts.
        hooks: of the ranks of this host.
        tell: takes a message to the launcher.

    """

    def __init__(self, alone: bool, hooks: HookServer, tell: Callable[[Reached], None]) -> None:
        self._alone = alone
        self._hooks = hooks
        self._tell = tell
        self._open: dict[str, _Gathering] = {}  # by fingerprint
        # Programs of which it was not known which of their ranks are here.
        self._unknown: set[str] = set()

    def came(self, rank: int, program: Program, now: float) -> None:
        """A rank is held at a program."""
        self.hand_on(rank)  # what another thread of it is held at
        if not self._is_known(program):
            self._unknown.add(program.fingerprint)
            self._tell(Reached((rank,), program, released=False))
            return
        found = self._open.get(program.fingerprint)
        if found is None or rank not in found.missing:
            found = self._open[program.fingerprint] = self._begin(program, now)
        found.untold.setdefault(program, []).append(rank)
        found.missing.discard(rank)
        if not found.missing:
            del self._open[program.fingerprint]
            whole = not (found.elsewhere or found.is_told or self._is_disputed(found))
            if whole:
                self._hooks.release(found.ranks, program.fingerprint)
            self._say(found, released=whole)
        elif found.is_told or self._is_disputed(found) or len(self._open) > _MOST_OPEN:
            self._say(found)

    def _is_known(self, program: Program) -> bool:
        """Whether it is known which of its ranks are here, and was so for all that have come."""
        if program.processes is None:
            return True
        told = self._hooks.ranks_of_processes(program.platform)
        return len(told) == len(self._hooks.ranks) and program.fingerprint not in self._unknown

    def _begin(self, program: Program, now: float) -> _Gathering:
        due = now + _TOGETHER_S
        if program.processes is None:
            return _Gathering(self._hooks.ranks, not self._alone, due)
        known = self._hooks.ranks_of_processes(program.platform)
        here = [known[number] for number in program.processes if number in known]
        return _Gathering(here, len(here) < len(program.processes), due)

    def _is_disputed(self, one: _Gathering) -> bool:
        """Whether some of its ranks have not come to another program: the order is to be judged."""
        others = (other for other in self._open.values() if other is not one and other.is_told)
        return any(other.ranks & one.ranks for other in others)

    def _say(self, one: _Gathering, released: bool = False) -> None:
        one.is_told = True
        untold, one.untold = one.untold, {}
        for program, ranks in untold.items():
            self._tell(Reached(tuple(ranks), program, released))

    def hand_on(self, rank: int) -> None:
        """Tell the launcher where a rank is held: something else is about to be said of it."""
        for one in self._open.values():
            if any(rank in ranks for ranks in one.untold.values()):
                self._say(one)

    def joined(self) -> None:
        """A rank has come through initialize(): all have begun, with nothing left of before."""
        self._open = {name: one for name, one in self._open.items() if one.untold}
        self._unknown.clear()

    @property
    def deadline(self) -> float | None:
        """When to call `expire`; None while the launcher knows where all are."""
        return min((one.due for one in self._open.values() if one.untold), default=None)

    def expire(self, now: float) -> None:
        """Tell the launcher of those that have come where others take their time."""
        for one in self._open.values():
            if one.untold and now >= one.due:
                self._say(one)
