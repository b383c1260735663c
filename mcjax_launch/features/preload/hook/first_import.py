"""First import of a preloaded module in a forked rank: what the program has set before."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# JAX only sets a flag from each of the variables that are named like its flags, but for these: it
# changes the value, or uses it during its import.
_USED_OTHERWISE = (
    *("JAX_BACKEND_TARGET", "JAX_PLATFORM_NAME", "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"),
)
_TRUTH = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}


class FirstImport:
    """Import finder that hides preloaded packages until the program imports one of them.

    Only the packages themselves are hidden, because their modules are imported through them.

    Args:
        names: names of packages; those that are not loaded are ignored.
        on_import: called once, when the program imports one of them; at once if none is loaded.

    """

    def __init__(self, names: Iterable[str], on_import: Callable[[], object]) -> None:
        self._on_import = on_import
        self._hidden = {name: sys.modules.pop(name) for name in names if _can_be_hidden(name)}
        if self._hidden:
            sys.meta_path.insert(0, self)
        else:
            on_import()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Put all packages back into sys.modules if `name` is one of them, and return its spec."""
        module = self._hidden.get(name)
        if module is None:
            return None
        sys.modules.update(self._hidden)
        self._hidden = {}
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._on_import()
        return _make_unchanged_spec(module)


def _can_be_hidden(name: str) -> bool:
    """Return whether a module is loaded, and a later import can be given it as it is.

    The loader has to be an object: that of another module cannot load this one as it is.
    """
    spec: Any = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not isinstance(spec.loader, (type, type(None)))


def _make_unchanged_spec(module: ModuleType) -> ModuleSpec:
    """Return a spec for a loaded module, whose import returns that module unchanged."""
    spec: Any = module.__spec__
    loader: Any = spec.loader

    def create_module(_: ModuleSpec) -> ModuleType:
        del loader.create_module  # which leaves the loader as it was
        return module

    def exec_module(_: ModuleType) -> None:
        del loader.exec_module

    loader.create_module, loader.exec_module = create_module, exec_module
    return spec  # type: ignore[no-any-return]


def apply_variables(before: Mapping[str, str]) -> list[str]:
    """Set JAX's flags from the variables that a program has set since JAX was imported for it.

    Args:
        before: the variables at that import.

    Returns:
        names of what has changed and cannot be applied: variables, and sys.path if jax would now be
        found elsewhere.

    """
    config: Any = getattr(sys.modules.get("jax._src.config"), "config", None)
    if config is None:  # no JAX was imported, or one of that name alone
        return []
    names = sorted({*before, *os.environ})
    changed = [name for name in names if before.get(name) != os.environ.get(name)]
    missed = [name for name in changed if name.startswith("JAX_") and not _apply(config, name)]
    return missed if _is_found_again("jax") else [*missed, "sys.path"]


def _apply(config: Any, name: str) -> bool:
    """Set the flag of a variable; return False if the flag exists and cannot be set so."""
    text, flag = os.environ.get(name), name.lower()
    if name in _USED_OTHERWISE:
        return False
    if flag not in config.meta:  # JAX reads it later, or not at all
        return True
    if text is None:
        return False
    try:
        config.update(flag, _parse(text, config.meta[flag][0]))
    except Exception:  # an import of JAX does not accept it either
        return False
    return True


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


def _is_found_again(name: str) -> bool:
    """Return whether Python would now find a loaded module in the same file."""
    import importlib.machinery

    loaded: Any = sys.modules[name].__spec__
    found = importlib.machinery.PathFinder.find_spec(name)
    # A finder of some build's own may have found it, which PathFinder does not.
    if found is None or found.origin == loaded.origin:
        return True
    return os.path.realpath(str(found.origin)) == os.path.realpath(str(loaded.origin))
