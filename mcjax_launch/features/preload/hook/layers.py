"""Effects of the imports before the program, in layers: one per package of --preload."""

from __future__ import annotations

import os
import sys

from .forking import Unfit
from .hidden_modules import HiddenModules, get_package
from .variable_reads import VariableReads, find_first_read

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any


class Layer:
    """Record of all that the import of a package has loaded, read and changed.

    Attributes:
        name: name of the package.
        packages: packages that were loaded, except the standard library's.
        origins: files of the loaded top-level modules, including the standard library's.
        has_libraries: True if a module of its packages is a library in C.
        uses: packages of earlier layers that it has imported.
        reads: variables read during the import; see `VariableReads`.
        settings: variables set during the import; None for variables removed.
        filters: filters of warnings added by the import.
        loggers: names of loggers made by the import.

    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.packages: set[str] = set()
        self.origins: dict[str, str | None] = {}
        self.has_libraries = False
        self.uses: set[str] = set()
        self.reads: set[str] = set()
        self.settings: dict[str, str | None] = {}
        self.filters: list[Any] = []
        self.loggers: list[str] = []

    def set_variables(self) -> None:
        """Set the variables that the import has set."""
        _assign(self.settings)

    def add_filters(self) -> None:
        """Put the filters of warnings on top of those that the program has set."""
        if self.filters:
            _set_filters([*self.filters, *_get_filters()])


class Layers:
    """Layers of the imports before the program, one per package, in the order of the imports.

    Use it as a context: inside, reads of environment variables are recorded, and `load` sets the
    variables as the program will set them.

    Args:
        guesses: variables that the program will probably set before its imports, with values.

    Attributes:
        jax_config: JAX's configuration; None if JAX was not imported.

    """

    def __init__(self, guesses: Mapping[str, str]) -> None:
        self.guesses = guesses
        self.jax_config: Any = None
        self._reads = VariableReads()
        self._read_before: set[str] = set()  # by what runs before the imports
        self._given: dict[str, str] = {}
        self._settings: dict[str, str | None] = {}  # of what runs before the imports
        self._layers: list[Layer] = []

    def __enter__(self) -> Layers:
        self._given = dict(os.environ)
        self._reads.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._reads.__exit__(*exception)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers)

    def load(self, modules: Collection[str], load: Callable[[str], object]) -> None:
        """Import modules, each into the layer of its package.

        Args:
            modules: names of the modules.
            load: function that imports a module by name.

        Raises:
            Unfit: an import changes effects of an earlier import.

        """
        self._read_before = self._reads.names
        self._settings = _compute_changes(self._given, dict(os.environ))
        os.environ.update(self.guesses)
        for module in modules:
            name = get_package(module)
            layer = next((layer for layer in self._layers if layer.name == name), None)
            if layer is None:
                layer = Layer(name)
            self._load(layer, lambda module=module: load(module))  # type: ignore[misc]
            if layer not in self._layers:
                self._layers.append(layer)
        self._reads.names = set()  # for what is read here afterwards

    def _load(self, layer: Layer, load: Callable[[], object]) -> None:
        """Import into a layer, with earlier layers hidden, to find out which of them it uses."""
        known = {get_package(name) for name in sys.modules}
        variables, filters, loggers = dict(os.environ), [*_get_filters()], {*_list_loggers()}
        flags = dict(self.jax_config.values) if self.jax_config is not None else None
        self._reads.names = layer.reads
        unseen = HiddenModules(self._layers, layer.uses.update)
        try:
            load()
        finally:
            unseen.show_all()
        if flags is not None and flags != self.jax_config.values:
            raise Unfit(f"importing {layer.name} changes flags of JAX")
        self.jax_config = getattr(sys.modules.get("jax._src.config"), "config", None)
        loaded = {name for name in sys.modules if "." not in name and name not in known}
        loaded = {name for name in loaded if _can_be_hidden(name)}
        layer.origins |= {name: _get_origin(name) for name in loaded}
        layer.packages |= loaded - sys.stdlib_module_names
        layer.has_libraries = any(
            get_package(name) in layer.packages and get_file(module).endswith(".so")
            for name, module in [*sys.modules.items()]
        )
        layer.settings |= _compute_changes(variables, dict(os.environ))
        layer.filters += [added for added in _get_filters() if added not in filters]
        layer.loggers += [name for name in _list_loggers() if name not in loggers]

    def find_difference(self, changes: Mapping[str, str | None]) -> str:
        """Return the first of some variables that an import may have read; "" if none was read.

        Args:
            changes: variables in which a rank differs from the server.

        """
        read = set().union(self._read_before, *(layer.reads for layer in self._layers))
        return find_first_read(changes, read)

    def undo(self, changes: Mapping[str, str | None]) -> None:
        """Remove the imports' variables and filters of warnings, for a rank's program.

        Args:
            changes: variables in which the rank differs from the server.

        """
        _assign({**dict.fromkeys(os.environ), **self._given, **changes, **self._settings})
        added = [of_import for layer in self._layers for of_import in layer.filters]
        _set_filters([kept for kept in _get_filters() if kept not in added])


def _can_be_hidden(name: str) -> bool:
    """Return whether a loaded module can be hidden now and given to a later import.

    The loader has to be an object: that of another module cannot load this one as it is.
    """
    spec: Any = getattr(sys.modules[name], "__spec__", None)
    return spec is not None and not isinstance(spec.loader, (type, type(None)))


def _get_origin(name: str) -> str | None:
    """Return the file of a top-level module; None if it is built in or frozen."""
    spec: Any = sys.modules[name].__spec__
    return str(spec.origin) if spec.has_location else None


def _compute_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    names = {**before, **after}  # in the order in which they were set
    return {name: after.get(name) for name in names if before.get(name) != after.get(name)}


def _assign(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


def _get_filters() -> list[Any]:
    import _warnings  # which has the list of `warnings`

    return _warnings.filters


def _set_filters(filters: list[Any]) -> None:
    import warnings

    _get_filters()[:] = filters
    with warnings.catch_warnings():  # which has what Python has cached of them forgotten
        pass


def _list_loggers() -> Collection[str]:
    logging: Any = sys.modules.get("logging")
    return logging.root.manager.loggerDict if logging is not None else ()


def get_file(module: object) -> str:
    """Return the file from which a module was loaded; "" if there is none."""
    try:
        # Not by way of a module's own lookup, which may import what has been put off.
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return ""
    return path if isinstance(path, str) else ""
