"""The backends that JAX starts, and the number that each gives this process.

`jax.process_index()` is the backend's number. On TPUs it is libtpu's, which is not told what
initialize() was given, and differs from that even where the hosts are in order.
"""

from __future__ import annotations

import sys

from ..wire.hook_messages import ProcessNumber
from .wrapping import in_place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .agent_link import AgentLink

_calls: dict[str, Callable[[Any], object]] = {}


def when_one_starts(name: str, call: Callable[[Any], object]) -> None:
    """Have something done with each backend that JAX starts from now on; call it before the first.

    Args:
        name: of the call; another one with the same name takes its place.
        call: is given the backend, and may raise what it likes.

    """
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    real = getattr(bridge, "_init_backend", None)
    if real is None:
        return
    if not _calls:
        bridge._init_backend = in_place_of(real, _calling(real))
    _calls[name] = call


def _calling(real: Callable[..., Any]) -> Callable[..., Any]:
    def init_backend(*args: Any, **kwargs: Any) -> Any:
        backend = real(*args, **kwargs)
        for call in _calls.values():
            _try(call, backend)
        return backend

    return init_backend


def _try(call: Callable[[Any], object], backend: Any) -> None:
    try:
        call(backend)
    except Exception:  # another JAX than we know: the program comes first
        pass


class Numbers:
    """Reports the numbers of this process, once it has joined.

    Args:
        link: to the agent.

    """

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._told: set[str] = set()
        self._joined = False

    def joined(self) -> None:
        """The process has come through initialize()."""
        self._joined = True
        self._told.clear()
        when_one_starts("numbers", self.tell)

    def tell(self, backend: Any) -> None:
        """Report the number that a backend gives this process, unless that is known."""
        platform = str(backend.platform)
        if self._joined and platform not in self._told:
            self._told.add(platform)
            self._link.send(ProcessNumber(platform, int(backend.process_index())))
