"""Comparison of a program's state with the state in which its modules were preloaded."""

from __future__ import annotations

import os
import sys

from .fresh_start import get_working_folder
from .variable_reads import select_read, select_read_in_c

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any

    from .layers import Layer, Layers

# JAX only sets a flag from each of the variables that are named like its flags, but for these: it
# changes the value, or uses it during its import.
_USED_OTHERWISE = (
    *("JAX_BACKEND_TARGET", "JAX_PLATFORM_NAME", "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"),
)
_TRUTH = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}


class StateComparison:
    """Initial state of a forked rank, for comparison with its state at an import.

    Args:
        layers: layers that were imported.
        path: sys.path at the program's start.
        in_c: function that returns the environment as C code sees it.

    """

    def __init__(
        self, layers: Layers, path: Sequence[str], in_c: Callable[[], Mapping[str, str]]
    ) -> None:
        self._variables = {**os.environ, **layers.guesses}
        self._path = path
        self._in_c = in_c
        self._folder = get_working_folder()
        self._cores = len(os.sched_getaffinity(0))
        self._streams = sys.stdout, sys.stderr
        self._logger_class = _get_logger_class()
        self._config = layers.jax_config  # None for a module of that name alone
        self._flags: dict[str, object] = {}

    def begin_jax(self) -> None:
        """Record JAX's flags when the program first imports JAX, to compare them later."""
        if self._config is not None:
            self._flags = dict(self._config.values)

    def add_variables(self, settings: Mapping[str, str | None]) -> None:
        """Record variables that an import has set, to compare them later."""
        self._variables |= {name: value for name, value in settings.items() if value is not None}

    def set_flags(self, layer: Layer) -> None:
        """Set JAX's flags from variables that the program changed before it imported JAX.

        Args:
            layer: layer of JAX.

        """
        if self._config is None:
            return
        for name in select_read(self._find_changed_variables(os.environ), layer.reads):
            text, flag = os.environ.get(name), name.lower()
            if text is None or flag not in self._config.meta or name in _USED_OTHERWISE:
                continue
            try:
                self._config.update(flag, _parse(text, self._config.meta[flag][0]))
            except Exception:  # JAX's import does not take it either
                continue
            self._variables[name] = text

    def find_differences(self, layer: Layer) -> Iterator[str]:
        """Yield names of variables and other things that have changed since a layer was imported.

        Args:
            layer: layer that the program is about to import.

        """
        changed = select_read(self._find_changed_variables(os.environ), layer.reads)
        if layer.has_libraries:
            changed |= select_read_in_c(self._find_changed_variables(self._in_c()))
        yield from sorted(changed)
        is_longer = sys.path[: len(self._path)] == self._path
        may_differ = not is_longer or get_working_folder() != self._folder
        if may_differ and not all(_is_found(*module) for module in layer.origins.items()):
            yield "sys.path"
        if layer.has_libraries and len(os.sched_getaffinity(0)) != self._cores:
            yield "its cores"
        if layer.loggers and (
            _get_logger_class() is not self._logger_class or _are_off(layer.loggers)
        ):
            yield "its loggers"
        if self._streams != (sys.stdout, sys.stderr):  # where handlers of loggers write
            yield "its streams"
        if self._flags and self._flags != self._config.values:
            yield "jax.config"

    def _find_changed_variables(self, now: Mapping[str, str]) -> set[str]:
        was = self._variables
        return {name for name in {*was, *now} if was.get(name) != now.get(name)}


def _parse(text: str, kind: object) -> object:
    """Return the value of a variable of JAX's, as JAX parses it.

    Args:
        text: text of the variable.
        kind: type of the flag; the flags of other types parse text themselves.

    Raises:
        KeyError, ValueError: JAX refuses this text.

    """
    if kind is bool:
        return _TRUTH[text.lower()]
    return kind(text) if kind in (int, float) else text


def _is_found(name: str, origin: str | None) -> bool:
    """Return whether Python would now find a module in the same file."""
    import importlib.machinery

    found = importlib.machinery.PathFinder.find_spec(name)
    # A finder of some build's own may have found it, which PathFinder does not.
    if found is None or origin is None or found.origin == origin:
        return True
    return os.path.realpath(str(found.origin)) == os.path.realpath(origin)


def _get_logger_class() -> Any:
    logging: Any = sys.modules.get("logging")
    return logging and logging.getLoggerClass()


def _are_off(names: Collection[str]) -> bool:
    """Return whether the program has disabled or removed any of these loggers."""
    loggers: Any = sys.modules["logging"].root.manager.loggerDict
    return any(name not in loggers or getattr(loggers[name], "disabled", False) for name in names)
