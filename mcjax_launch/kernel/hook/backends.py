"""The backends that JAX starts: their platforms, and the number that each gives this process.

Where JAX finds no GPU it uses the CPU without a word, and the others wait for its devices.

`jax.process_index()` is the backend's number. On TPUs it is libtpu's, which is not told what
initialize() was given, and differs from that even where the hosts are in order.
"""

from __future__ import annotations

from ..wire.hook_messages import Backend, ProcessNumber
from . import gpus
from .wrapping import in_place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .agent_link import AgentLink

# JAX tries these everywhere. Any other platform has devices when it is started, or fails.
_TRIED = ("cpu", "tpu", "interpreter", "proxy")
_GPUS = ("cuda", "rocm")
_MOST_REASON = 300
#: What is given each backend that JAX starts while the process takes part in the job; by name.
when_one_starts: dict[str, Callable[[Any], object]] = {}


class Backends:
    """Patches where JAX starts its backends.

    Args:
        link: to the agent.
        is_member: whether this process takes part in the job.
        environ: as this rank was given it.

    """

    def __init__(
        self, link: AgentLink, is_member: Callable[[], bool], environ: Mapping[str, str]
    ) -> None:
        self._link = link
        self._is_member = is_member
        self._environ = environ
        self._told: Any = None

    def patch(self, bridge: Any) -> None:
        """Tell what is started, and what has been."""
        start, real = bridge._init_backend, bridge.backends

        def _init_backend(platform: str) -> Any:
            if platform in _GPUS:
                gpus.leave_to_program(self._environ)
            # With other processes it may wait for ever: told before.
            if platform not in _TRIED and self._is_member():
                self._link.send(Backend(str(platform), 0))
            backend = start(platform)
            if self._is_member():
                for call in (self._report_number, *when_one_starts.values()):
                    _try(call, backend)
            return backend

        def backends() -> Any:
            found = real()
            if self._told is not bridge._default_backend and self._is_member():
                self._told = bridge._default_backend
                _try(self._report, bridge)
            return found

        bridge._init_backend = in_place_of(start, _init_backend)
        bridge.backends = in_place_of(real, backends)

    def _report(self, bridge: Any) -> None:
        backend = bridge._default_backend
        platform, count = str(backend.platform), int(backend.local_device_count())
        why = _why_no_gpu(bridge) if platform == "cpu" else ""
        self._link.send(Backend(platform, count, why[:_MOST_REASON]))

    def _report_number(self, backend: Any) -> None:
        """Report the number that a backend gives this process."""
        self._link.send(ProcessNumber(str(backend.platform), int(backend.process_index())))


def _why_no_gpu(bridge: Any) -> str:
    """Why JAX uses the CPU although there is a GPU; "" where none is, or the CPU is asked for."""
    if bridge.config.jax_platforms.value:
        return ""
    errors = {name: str(error) for name, error in bridge._backend_errors.items() if name in _GPUS}
    for name, error in errors.items():
        return f"{name}: {error.strip().partition(chr(10))[0]}"
    seen = getattr(bridge.hardware_utils, "has_visible_nvidia_gpu", None)
    return "its jax has no plugin for the GPU that is there" if seen is not None and seen() else ""


def _try(call: Callable[[Any], object], subject: Any) -> None:
    try:
        call(subject)
    except Exception:  # another JAX than we know: the program comes first
        pass
