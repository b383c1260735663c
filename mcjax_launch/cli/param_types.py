"""Types of option values as click wants them: text from the command line or the environment."""

from collections.abc import Callable
from typing import Any

import click

from mcjax_launch.request import kinds


class Typed(click.ParamType):  # type: ignore[type-arg]
    """A kind of value, see `request/kinds.py`.

    Attributes:
        kind: turns text into a value; raises ValueError.

    """

    kind: Callable[[Any], Any]

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self.kind(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Named(click.ParamType):  # type: ignore[type-arg]
    """Text that a shell can complete.

    Args:
        offer: the function of `cli/completion.py` that does it.

    """

    def __init__(self, offer: str) -> None:
        self.name = offer

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> Any:  # noqa: ARG002  click's
        from mcjax_launch.cli import completion

        return getattr(completion, self.name)(incomplete)


FILE = Named("files")
FOLDER = Named("folders")
HOSTS = Named("hosts")


class Duration(Typed):
    """Seconds."""

    name = "duration"
    kind = staticmethod(kinds.duration)


class Limit(Typed):
    """A duration that something may take; 0 for no limit."""

    name = "limit"
    kind = staticmethod(kinds.limit)


class Ranks(Typed):
    """A set of ranks."""

    name = "ranks"
    kind = staticmethod(kinds.ranks)


class SomeRanks(Typed):
    """A set of ranks, all or none."""

    name = "ranks"
    kind = staticmethod(kinds.some_ranks)


class Wrap(Typed):
    """A command that ranks run under."""

    name = "wrapper"
    kind = staticmethod(kinds.wrapper)
    envvar_list_splitter = "\n"  # of a variable with several: a command has spaces


class WholeNumber(Typed):
    """A whole number within bounds."""

    name = "number"

    def __init__(self, minimum: int, maximum: int) -> None:
        self.kind = kinds.Number(minimum, maximum)


class HostRank(Typed):
    """Which host a launcher is for."""

    name = "number"
    kind = staticmethod(kinds.host_rank)


class Slices(Typed):
    """How many slices, or by what."""

    name = "slices"
    kind = staticmethod(kinds.slices)


class Gpus(Typed):
    """How many GPUs a rank gets."""

    name = "gpus"
    kind = staticmethod(kinds.gpus)


class Modules(Typed):
    """Names of Python modules."""

    name = "modules"
    kind = staticmethod(kinds.modules)
