"""What imports leave in the interpreter, beside modules and variables: undone, and done again.

A program that has not imported a package yet finds nothing of it: no filters of warnings, exit
handlers, callbacks or loggers. When it imports the package they come, in the order and on top of
what the program has set since, as if the import ran now.
"""

from __future__ import annotations

import sys

from .import_graph import calling_module, package_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

# Lists to which imports add, by the modules that hold them.
_LISTS = (("_warnings", "filters"), ("gc", "callbacks"), ("logging", "_handlerList"))


class ImportEffects:
    """A `with` around imports in which their effects are recorded, by the package that has them."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], _ListEffects] = {}
        self._loggers: dict[str, tuple[str, Any]] = {}  # the package, and what has that name
        self._handlers: list[tuple[str, Callable[..., object], Any, Any]] = []  # of the exit
        self._streams = sys.stdout, sys.stderr
        self._logger_class: Any = None  # of new loggers
        self._register: Any = None  # atexit's own
        self._running = ""  # the package that was last known to run

    def __enter__(self) -> ImportEffects:
        import atexit

        real: Any = atexit.register

        def register(function: Any, *args: Any, **named: Any) -> Any:
            if atexit.register is real:  # somebody has kept this one
                return real(function, *args, **named)
            # Of who calls this: a finalizer's, for example, is weakref's own.
            package = package_of(calling_module()) or self._running
            self._handlers.append((package, function, args, named))
            return function

        atexit.register, self._register = register, real  # type: ignore[assignment]
        self.ran("")
        return self

    def __exit__(self, *exception: object) -> None:
        import atexit

        self.ran("")
        atexit.register = self._register
        self._logger_class = _logger_class()
        for name, (package, _) in self._loggers.items():  # some of which were placeholders
            self._loggers[name] = package, _manager().loggerDict[name]

    def ran(self, package: str) -> None:
        """Modules of a package have run: what is new is theirs."""
        if package and package[0] != "_" and package not in sys.builtin_module_names:
            self._running = package
        for place in _LISTS:
            found = getattr(sys.modules.get(place[0]), place[1], None)
            if found is not None and place not in self._lists:
                self._lists[place] = _ListEffects(found)
            elif found is not None:
                self._lists[place].ran(package)
        manager = _manager()
        if manager is not None and len(manager.loggerDict) > len(self._loggers):
            for name, logger in manager.loggerDict.items():
                self._loggers.setdefault(name, (package, logger))

    # --- in a rank ---

    def undo(self, packages: Collection[str]) -> None:
        """Take back what these have done."""
        for effects in self._lists.values():
            effects.undo(packages)
        for name, (package, _) in self._loggers.items():
            if package in packages:
                del _manager().loggerDict[name]
        self._register_handlers(lambda package: package not in packages)

    def missed(self, packages: Collection[str]) -> set[str]:
        """The packages whose loggers the program has made, or would have in another class."""
        loggers = [one for one in self._loggers.items() if one[1][0] in packages]
        if not loggers:
            return set()
        logging: Any = sys.modules["logging"]
        if _logger_class() is not self._logger_class:
            return {package for _, (package, _) in loggers}
        # Others are but a place for one.
        made = {name for name, one in _manager().loggerDict.items() if hasattr(one, "handlers")}
        return {
            package
            for name, (package, logger) in loggers
            if isinstance(logger, logging.Logger) and name in made
        }

    def redo(self, packages: Collection[str]) -> None:
        """Do what these have done."""
        for effects in self._lists.values():
            effects.redo(packages)
        for name, (package, logger) in self._loggers.items():
            if package in packages and hasattr(logger, "handlers"):
                _add_logger(name, logger)
        self._register_handlers(lambda package: package in packages)
        self._point_at_streams()

    def _register_handlers(self, is_due: Callable[[str], bool]) -> None:
        rest = []
        for handler in self._handlers:
            package, function, args, named = handler
            if is_due(package):
                self._register(function, *args, **named)
            else:
                rest.append(handler)
        self._handlers = rest

    def _point_at_streams(self) -> None:
        """Have log handlers write where the program has had standard error lead since."""
        effects = self._lists.get(("logging", "_handlerList"))
        for reference in effects.added if effects is not None else ():
            handler = reference()
            for was, is_now in zip(self._streams, (sys.stdout, sys.stderr)):
                if was is not is_now and getattr(handler, "stream", None) is was:
                    handler.stream = is_now


class _ListEffects:
    """What packages have added to a list: each at the front, or each at the end."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items
        self._known = {id(item) for item in items}
        self._first = items[0] if items else None
        self._added: list[tuple[str, Any, bool]] = []

    @property
    def added(self) -> list[Any]:
        return [item for _, item, _ in self._added]

    def ran(self, package: str) -> None:
        if len(self._items) == len(self._known):
            return
        new = [at for at, item in enumerate(self._items) if id(item) not in self._known]
        old = [at for at, item in enumerate(self._items) if id(item) in self._known]
        front = [at for at in new if old and at < old[0]]
        # What is put in front one after another stands there in the opposite order.
        for at in [*reversed(front), *(at for at in new if at not in front)]:
            self._added.append((package, self._items[at], at in front))
            self._known.add(id(self._items[at]))

    def undo(self, packages: Collection[str]) -> None:
        gone = {id(item) for package, item, _ in self._added if package in packages}
        self._items[:] = [item for item in self._items if id(item) not in gone]
        _filters_have_changed()

    def redo(self, packages: Collection[str]) -> None:
        due = [(item, front) for package, item, front in self._added if package in packages]
        for item, front in due:
            if item in self._items:
                self._items.remove(item)
            self._items.insert(0 if front else len(self._items), item)
        if due:
            _filters_have_changed()


def _filters_have_changed() -> None:
    """Have what is cached of the filters of warnings forgotten."""
    import _warnings

    module: Any = _warnings
    if hasattr(module, "_filters_mutated"):
        module._filters_mutated()
    else:  # since Python 3.14
        module._acquire_lock()
        module._filters_mutated_lock_held()
        module._release_lock()


def _manager() -> Any:
    """Who has all loggers; None where nobody has imported logging."""
    logging: Any = sys.modules.get("logging")
    return getattr(getattr(logging, "Logger", None), "manager", None)


def _logger_class() -> Any:
    logging: Any = sys.modules.get("logging")
    return logging and (_manager().loggerClass or logging.getLoggerClass())


def _add_logger(name: str, logger: Any) -> None:
    """Have logging find this one, made just now; or what the program has made of that name."""
    manager = _manager()
    its_class, manager.loggerClass = manager.loggerClass, lambda _: logger
    try:
        found = manager.getLogger(name)
    finally:
        manager.loggerClass = its_class
    if found is not logger:
        for handler in logger.handlers:
            found.addHandler(handler)
        if logger.level:
            found.setLevel(logger.level)
        logger.__dict__ = found.__dict__  # the package has this one, and the program that one
