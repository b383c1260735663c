"""--preload on one host: a fork server imports modules, and the ranks are forked from it."""

from __future__ import annotations

from ....kernel.agent.agent import NO_INPUT
from ....kernel.agent.part import AgentPart
from ..messages import Importing, Preload

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ....kernel.agent.agent import Agent
    from ....kernel.agent.hook_server import HookConnection
    from ....kernel.agent.part import Wanted
    from ....kernel.agent.stacks import Importer
    from ....kernel.wire.codec import Message
    from ....kernel.wire.frames import Raw
    from ....kernel.wire.messages import FromHook
    from .forking import ForkResult
    from .preloading import Preloading


class PreloadPart(AgentPart):
    """Has the ranks forked, as far as that can be done, and the others started."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._modules: tuple[str, ...] = ()
        self._preloading: Preloading | None = None

    def received(self, message: Message | Raw) -> None:
        """What to import comes before the start."""
        assert isinstance(message, Preload)
        self._modules = message.modules

    def hook_said(self, hook: HookConnection, said: FromHook) -> None:
        """Pass on what a forked rank has noticed."""
        self.agent.link.send(said)

    def starts_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Have these forked."""
        if not self._modules:
            return False
        from .forking import Forking
        from .preloading import Preloading

        agent = self.agent
        self._preloading = Preloading(
            self._modules,
            Forking(ranks, agent.standard_streams, agent.started),
            agent.loop,
            on_importing=lambda module: agent.link.send(Importing(module)),
            on_end=self._over,
        )
        self._preloading.begin(NO_INPUT, agent.files_limit)
        return True

    def _over(self, outcome: ForkResult) -> None:
        for report in outcome.reports():
            self.agent.link.send(report)
        self.agent.start_ranks(outcome.afresh)
        self.agent.reap()  # a rank may have been killed before it was one

    def look(self) -> None:
        """See whether the server has ended, which comes before its children's ends."""
        if self._preloading is not None:
            self._preloading.look()

    def owns(self, pid: int) -> bool:
        """Whether it is the server."""
        return self._preloading is not None and self._preloading.is_server(pid)

    @property
    def is_starting(self) -> bool:
        """Whether there may be children that will be ranks."""
        return self._preloading is not None and self._preloading.is_under_way

    @property
    def stand_ins(self) -> Mapping[int, int]:
        """The server imports for the first rank."""
        return self._preloading.importing if self._preloading is not None else {}

    def request_stacks(self, all_threads: bool) -> Collection[Importer]:
        """Ask the server for its stack."""
        return self._preloading.request_stacks(all_threads) if self._preloading is not None else ()

    def ranks_end(self) -> None:
        """What is not forked yet will not be."""
        if self._preloading is not None:
            self._preloading.abandon()


PART = PreloadPart
