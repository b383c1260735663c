"""How the launcher learns where the main threads of ranks are."""

from __future__ import annotations

from ...kernel.wire.hook_messages import HookMessage
from ...kernel.wire.messages import ToAgent, ToLauncher

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "looks"


class AskPlaces(ToAgent):
    """Ask each process that has joined where its main thread is: answered by PlacesAsked."""


class PlacesAsked(ToLauncher):
    """These ranks have been asked; `blocked`: where in the kernel each one's main thread waited."""

    ranks: tuple[int, ...]
    blocked: tuple[str, ...]

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return self.ranks


class StandsAt(HookMessage):
    """Where the main thread is, as a dump of stacks has it.

    It comes as soon as that runs Python: so the thread has been there since it was asked first.
    `beside`: another thread is in JAX.
    """

    calls: str
    beside: bool = False
