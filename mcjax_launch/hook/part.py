"""Base class and registry of features' parts in a rank: one object per feature."""

from __future__ import annotations

from .. import features
from ..wire import hook_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from types import TracebackType
    from typing import Any, TypeVar

    from .agent_link import AgentLink

    T = TypeVar("T")


class RankPart:
    """Part of a feature in a rank; methods do nothing by default. `features.NAME.hook.PART` is it.

    Args:
        link: the link to the agent.
        environ: environment variables with which this process was started.

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self.link = link
        self.environ = environ

    @property
    def asked(self) -> str:
        """Value of the feature's environment variable, set by the launcher; "" if unset."""
        _, _, below = type(self).__module__.partition(".features.")
        return self.environ.get(hook_environ.get_feature_variable(below.partition(".")[0]), "")

    def on_join(self) -> None:
        """Handle the return of initialize()."""

    def patch(self, module: Any) -> None:
        """Patch a module that the program has imported; see `features.PATCHES`."""


# --- what one feature does in a rank: `Parts.find` returns its part, if this job has it ---


class DebuggerPart(RankPart):
    """Part that patches debuggers, and opens one after an exception."""

    def on_failure(self, error: BaseException, traceback: TracebackType) -> None:
        """Handle an exception that has ended the program; called before it is reported."""
        raise NotImplementedError


class JoinArguments(RankPart):
    """Part that has arguments for the program's call of initialize()."""

    def make_arguments(self, given: Mapping[str, Any], known: Container[str]) -> Mapping[str, Any]:
        """Return arguments to add to a call of initialize().

        Args:
            given: arguments of the call so far.
            known: names of the arguments that initialize() accepts.

        Raises:
            RuntimeError: this jax lacks something that the job needs.

        """
        raise NotImplementedError


class ProgramSource(RankPart):
    """Part that has programs that another rank, or an earlier run, has compiled."""

    def obtain(self, compile_: Callable[..., Any], program: tuple[Any, ...]) -> Any:
        """Return the executable of a program.

        Args:
            compile_: function that compiles the program; it raises the compiler's exceptions.
            program: arguments for `compile_`, as JAX passes them to its compiler.

        """
        raise NotImplementedError


class RunRecorder(RankPart):
    """Part that records which programs run."""

    def describe(self, backend: Any, computation: Any, devices: Any, *more: Any) -> Any:
        """Return a description of a program that is about to be compiled; None if none is needed.

        Args: those of JAX's `compile_or_get_cached`.

        """
        raise NotImplementedError

    def on_compiled(self, program: Any, executable: Any) -> None:
        """Handle that a program has been compiled; `program` is what `describe` has returned."""
        raise NotImplementedError


class LoneRank(RankPart):
    """Part that has a rank run alone, without the other ranks of its job."""

    def join(self, real: Callable[..., Any], filled: Mapping[str, Any]) -> Any:
        """Call JAX's initialize() so that it waits for no other rank.

        Args:
            real: JAX's own function.
            filled: arguments of the call in the whole job.

        """
        raise NotImplementedError


class Parts:
    """Features' parts in this process, each made when it is first needed.

    Args: see RankPart.

    Attributes:
        recorder: the part that records runs of programs; None if there is none.

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self._link = link
        self._environ = environ  # shared: it may become that of a forked rank
        self._made: dict[str, RankPart] = {}
        self.recorder: RunRecorder | None = None

    def get_part(self, feature: str) -> RankPart:
        """Return the part of a feature."""
        if feature not in self._made:
            self._made[feature] = import_hook_module(feature).PART(self._link, self._environ)
        return self._made[feature]

    def load_recorder(self) -> RunRecorder:
        """Return the part that records runs of programs: an enabled one, else the usual one."""
        part = self.find(RunRecorder) or self.get_part(features.RECORDER)
        assert isinstance(part, RunRecorder)
        self.recorder = part
        return part

    def list_enabled(self) -> list[RankPart]:
        """Return the parts of the features that the launcher has switched on in this job."""
        return [
            self.get_part(feature)
            for feature in hook_environ.list_requested_features(self._environ)
        ]

    def find(self, kind: type[T]) -> T | None:
        """Return the enabled part of this kind; None if this job has none."""
        return next((part for part in self.list_enabled() if isinstance(part, kind)), None)


def import_hook_module(feature: str) -> Any:
    """Return the module that holds a feature's code for ranks."""
    return __import__(f"{features.__name__}.{feature}.hook", fromlist=["PART"])
