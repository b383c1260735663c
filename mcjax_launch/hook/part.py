"""Base class and registry of features' parts in a rank: one object per feature."""

from __future__ import annotations

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
        """The launcher's request of the feature in this rank; "" for none."""
        _, _, below = type(self).__module__.partition(".features.")
        return hook_environ.get_request(below.partition(".")[0], self.environ)

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
        """Call JAX's initialize(), in place of the core."""
        return real(**filled)

    def on_join(self, *, is_alone: bool) -> None:
        """Handle the return of initialize(); `is_alone` if the job has no other process."""

    def obtain(
        self, compile_: Callable[[], Any], backend: Any, options: Any, callbacks: Any
    ) -> Any:
        """Return the executable of a program.

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

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self._link = link
        self._environ = environ  # shared: it may become that of a forked rank
        self._made: dict[str, RankPart] = {}

    def get_part(self, feature: str) -> RankPart:
        """Return the part of a feature."""
        if feature not in self._made:
            self._made[feature] = import_hook_module(feature).PART(self._link, self._environ)
        return self._made[feature]

    def list_enabled(self) -> list[RankPart]:
        """Return the parts of the features that the launcher has switched on in this job."""
        return [
            self.get_part(feature)
            for feature in hook_environ.list_requested_features(self._environ)
        ]

    def find(self, method: str) -> RankPart | None:
        """Return the enabled part that has its own form of a method of RankPart; None if none."""
        usual = getattr(RankPart, method)
        own = (part for part in self.list_enabled() if getattr(type(part), method) is not usual)
        return next(own, None)


def import_hook_module(feature: str) -> Any:
    """Return the module that holds a feature's code for ranks."""
    package = __name__.partition(".")[0]
    return __import__(f"{package}.features.{feature}.hook", fromlist=["PART"])
