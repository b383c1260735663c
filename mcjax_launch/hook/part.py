"""Base class and registry of features' parts in a rank: one object per feature."""

from __future__ import annotations

from .. import features
from ..wire import hook_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from types import TracebackType
    from typing import Any

    from .agent_link import AgentLink


class RankPart:
    """Part of a feature in a rank; `features.NAME.hook.PART` is its class.

    By default its methods do nothing; a feature overrides those that it needs.

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

    def patch(self, module: Any) -> None:
        """Patch a module that the program has imported; see `features.list_patched`."""

    def make_arguments(self, given: Mapping[str, Any], known: Container[str]) -> Mapping[str, Any]:
        """Return arguments to add to a call of initialize().

        Args:
            given: arguments of the call so far.
            known: names of the arguments that initialize() accepts.

        Raises:
            RuntimeError: this jax lacks something that the job needs.

        """
        return {}

    def join(self, real: Callable[..., Any], filled: Mapping[str, Any]) -> Any:
        """Call JAX's initialize(), in a rank that runs alone (`features.ALONE`)."""
        return real(**filled)

    def on_join(self) -> None:
        """Handle the return of initialize()."""

    def obtain(
        self, compile_: Callable[[], Any], backend: Any, options: Any, callbacks: Any
    ) -> Any:
        """Return the executable of a program (`features.COMPILER`).

        Args:
            compile_: has JAX look into its cache, and compile the program.
            backend, options, callbacks: what JAX passes to its compiler besides the program.

        Raises:
            Exception: whatever the compiler raises.

        """
        return compile_()

    def describe(self, backend: Any, computation: Any, devices: Any, options: Any) -> Any:
        """Return a description of a program that is about to be compiled; None if none is needed.

        Args: the first ones of JAX's `compile_or_get_cached`.

        """

    def on_compiled(self, program: Any, executable: Any) -> None:
        """Handle that a program has been compiled; `program` is what `describe` has returned."""

    def on_failure(self, error: BaseException, traceback: TracebackType) -> None:
        """Handle an exception that has ended the program; called before it is reported."""


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
        self.recorder: RankPart | None = None

    def get_part(self, feature: str) -> RankPart:
        """Return the part of a feature."""
        if feature not in self._made:
            self._made[feature] = import_hook_module(feature).PART(self._link, self._environ)
        return self._made[feature]

    def load_recorder(self) -> RankPart | None:
        """Return the part that records runs of programs: an enabled one, else the usual one."""
        usual = features.RECORDER
        self.recorder = self.find(features.ALONE)
        if self.recorder is None and features.exists(usual):
            self.recorder = self.get_part(usual)
        return self.recorder

    def list_enabled(self) -> list[RankPart]:
        """Return the parts of the features that the launcher has switched on in this job."""
        return [
            self.get_part(feature)
            for feature in hook_environ.list_requested_features(self._environ)
        ]

    def find(self, feature: str) -> RankPart | None:
        """Return the part of a feature if this job has it switched on; else None."""
        is_enabled = hook_environ.get_feature_variable(feature) in self._environ
        return self.get_part(feature) if is_enabled else None


def import_hook_module(feature: str) -> Any:
    """Return the module that holds a feature's code for ranks."""
    return __import__(f"{features.__name__}.{feature}.hook", fromlist=["PART"])
