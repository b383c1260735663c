"""What a feature does in a rank: one object for each feature that has something to do there."""

from __future__ import annotations

from ... import features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Any

    from ..wire.hook_messages import Program, ProgramText
    from .agent_link import AgentLink

    ShownText = Callable[[], Iterable[ProgramText]]


class RankPart:
    """By default it does nothing. `features.<name>.hook` has the class, as PART.

    Args:
        link: to the agent.
        environ: of this process, as it was started.

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self.link = link
        self.environ = environ

    def patch(self, module: Any) -> None:
        """The program has imported one of the modules that `features.PATCHES` names."""

    def failed(self, error: BaseException, traceback: TracebackType) -> None:
        """An exception has ended the program, and has not been reported yet."""

    def joined(self) -> bool:
        """initialize() has returned; whether the signal PROFILE is heeded from now on."""
        return False

    def obtain(self, compile_: Callable[..., Any], program: tuple[Any, ...]) -> Any:
        """Return the executable of a program.

        Args:
            compile_: compiles it, and raises what the compiler raises.
            program: the arguments of `compile_`, as JAX gives them to its compiler.

        """
        return compile_(*program)

    def compiles(self, program: Program, keep: Callable[[], ShownText]) -> None:
        """Note that this thread is about to compile a program that spans processes.

        Args:
            program: which.
            keep: makes what gives its text, in any thread, while it is compiled.

        """

    def compiled(self, program: Program) -> None:
        """Note that it has compiled it, or failed to."""

    def hold(
        self, program: Program, show: ShownText, given: Callable[[], Iterable[tuple[Any, Any]]]
    ) -> bool:
        """Announce a program that spans processes, and come back when it may run.

        Args:
            program: which.
            show: gives its text, if that is wanted.
            given: gives its arguments, each with the sharding that it has in the program.

        Returns:
            Whether it has been announced.

        """
        return False


class Parts:
    """The parts in this process, each loaded when there is something for it to do.

    Args: see RankPart.

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self._link = link
        self._environ = environ  # which may become that of a forked rank
        self._made: dict[str, RankPart] = {}

    def part(self, feature: str) -> RankPart:
        """That of one feature."""
        if feature not in self._made:
            self._made[feature] = module_of(feature).PART(self._link, self._environ)
        return self._made[feature]

    def asked(self) -> list[RankPart]:
        """Those that this job has asked for."""
        asked_by = features.ASKED_BY.items()
        return [self.part(feature) for name, feature in asked_by if self._environ.get(name)]


def module_of(feature: str) -> Any:
    """What a feature has for ranks."""
    return __import__(f"{features.__name__}.{feature}.hook", fromlist=["PART"])
