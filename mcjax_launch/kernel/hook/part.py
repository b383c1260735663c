"""Parts of features in a rank: one object for each feature that does something there."""

from __future__ import annotations

from ... import features
from ..wire import hook_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from types import TracebackType
    from typing import Any

    from ..wire.hook_messages import Program, ProgramText
    from .agent_link import AgentLink

    ShownText = Callable[[], Iterable[ProgramText]]


class RankPart:
    """Part of a feature in a rank; does nothing by default. `features.NAME.hook` has it as PART.

    Args:
        link: the link to the agent.
        environ: this process's variables, as it was started.

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self.link = link
        self.environ = environ

    @property
    def asked(self) -> str:
        """Value of the feature's variable, which says what the part is asked for; "" if unset."""
        _, _, below = type(self).__module__.partition(".features.")
        return self.environ.get(hook_environ.of_feature(below.partition(".")[0]), "")

    def patch(self, module: Any) -> None:
        """Patch a module that `features.PATCHES` names; called when the program has imported it."""

    def failed(self, error: BaseException, traceback: TracebackType) -> None:
        """Handle an exception that has ended the program, before it is reported."""

    def arguments(self, given: Mapping[str, Any], known: Container[str]) -> Mapping[str, Any]:
        """Return arguments to add to a call of initialize().

        Args:
            given: its arguments so far.
            known: the names of the arguments that it accepts.

        Raises:
            RuntimeError: this jax lacks something that the job needs.

        """
        return {}

    def joined(self) -> bool:
        """Act when initialize() has returned; return whether PROFILE is handled from now on."""
        return False

    def obtain(self, compile_: Callable[..., Any], program: tuple[Any, ...]) -> Any:
        """Return the executable of a program.

        Args:
            compile_: compiles the program, and raises what the compiler raises.
            program: the arguments of `compile_`, as JAX passes them to its compiler.

        """
        return compile_(*program)

    def compiles(self, program: Program, keep: Callable[[], ShownText]) -> None:
        """Act when this thread is about to compile a program that spans processes.

        Args:
            program: the program.
            keep: returns a function that makes the program's text, for use in any thread during the
                compilation.

        """

    def compiled(self, program: Program) -> None:
        """Act when this thread has compiled the program, or has failed to."""

    def hold(
        self, program: Program, show: ShownText, given: Callable[[], Iterable[tuple[Any, Any]]]
    ) -> bool:
        """Announce a program that spans processes, and return when it may run.

        Args:
            program: the program.
            show: yields its text, if that is wanted.
            given: returns its arguments, each with its sharding in the program.

        Returns:
            whether it has been announced.

        """
        return False


class Parts:
    """Parts of this process, each loaded when it is first needed.

    Args: see RankPart.
    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self._link = link
        self._environ = environ  # shared: it may become that of a forked rank
        self._made: dict[str, RankPart] = {}

    def part(self, feature: str) -> RankPart:
        """Return the part of a feature."""
        if feature not in self._made:
            self._made[feature] = module_of(feature).PART(self._link, self._environ)
        return self._made[feature]

    def asked(self) -> list[RankPart]:
        """Return the parts of the features that are switched on in this job."""
        return [self.part(feature) for feature in hook_environ.asked_features(self._environ)]


def module_of(feature: str) -> Any:
    """Return the module that holds a feature's code for ranks."""
    return __import__(f"{features.__name__}.{feature}.hook", fromlist=["PART"])
