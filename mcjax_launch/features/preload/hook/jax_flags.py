"""JAX's flags, read from the environment again, by JAX's own code.

A flag is defined by one statement: `enable_x64 = bool_state(name="jax_enable_x64", ...)`. Only
that knows which variable it reads, and how. So it is evaluated again, with copies of the functions
of `jax._src.config` that keep what they read in a config of their own.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType

from .import_graph import executing_module, package_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Collection, Iterator
    from typing import Any

_CONFIG = "jax._src.config"

#: What jax itself decides by when it is imported: seen with a stand-in for `State.value`
#: while 0.6.0 to 0.12.0.1 were imported. A test looks whether the jax at hand has more.
USED_BY_JAX = frozenset(
    {"JAX_CUSTOM_VJP3", "JAX_DEFAULT_DTYPE_BITS", "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"}
)


class JaxFlags:
    """The flags of a jax that is imported: a `with` around the imports.

    It notes their values just after jax's own import, and those that the imports of other packages
    use.
    """

    def __init__(self) -> None:
        self._imported: dict[str, Any] = {}
        self._states: dict[str, Any] = {}
        self._used: dict[tuple[str, str], list[Any]] = {}  # the values, by flag and package

    def __enter__(self) -> JaxFlags:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._imported:
            del sys.modules[_CONFIG].State.value

    def imported(self, package: str) -> None:
        """A package has been imported: if it is jax, begin."""
        if package != "jax" or self._imported or sys.modules["jax"].__spec__._initializing:  # type: ignore[union-attr]
            return
        config: Any = sys.modules.get(_CONFIG)
        if config is None:  # of that name only
            return
        self._imported = dict(config.config.values)
        real = config.State.value  # jaxlib's property

        def value(state: Any) -> Any:
            found = real.__get__(state)
            self._states[state._name] = state
            seen = self._used.setdefault((state._name, package_of(executing_module()[0])), [])
            if found not in seen:
                seen.append(found)
            return found

        config.State.value = property(value)

    def changed(self, packages: Collection[str]) -> dict[str, set[str]]:
        """The flags that the imports of packages have used, and that have other values now.

        Args:
            packages: that are imported.

        Returns:
            by package, the variables of the flags.

        """
        found: dict[str, set[str]] = {}
        for (name, package), seen in self._used.items():
            if package in packages and self._states[name].value not in seen:
                found.setdefault(package, set()).add(name.upper())
        return found

    def read_again(self, places: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Set the flags that are defined there, as an import of jax would now.

        A flag that somebody has set since that import stays.

        Args:
            places: modules of jax, and lines in them that read variables.

        Returns:
            those of the places that do nothing but define a flag.

        Raises:
            ValueError: a variable has a value that jax refuses.

        """
        config: Any = sys.modules[_CONFIG]
        copy = _copy_of(config)
        defining: set[tuple[str, int]] = set()
        for module in sorted({module for module, _ in places}):
            lines = [line for name, line in places if name == module]
            defining |= {(module, line) for line in _define(sys.modules[module], lines, copy)}
        holders = config.config._value_holders
        for name, value in copy.config.values.items():
            if name not in self._imported or holders[name].value == self._imported[name]:
                holders[name]._set(value)
        return defining


class _Holder:
    """A flag's name and value, and nothing else: stands in for the classes of jax."""

    def __init__(self, name: str, default: object, *_: object, **__: object) -> None:
        self.name, self.value = name, default

    def __class_getitem__(cls, _: object) -> type[_Holder]:
        return cls


def _copy_of(config: ModuleType) -> Any:
    """A module with the functions that define flags, and no flags."""
    copy: Any = ModuleType(config.__name__)
    vars(copy).update(vars(config))
    for name, value in vars(config).items():
        if isinstance(value, FunctionType) and value.__globals__ is vars(config):
            arguments = value.__name__, value.__defaults__, value.__closure__
            function = FunctionType(value.__code__, vars(copy), *arguments)
            function.__kwdefaults__ = value.__kwdefaults__
            setattr(copy, name, function)
    copy.State = copy.Flag = _Holder
    copy.Config = type("Config", (copy.Config,), {})  # which gets an attribute for each flag
    copy.config = copy.Config()
    return copy


def _define(module: ModuleType, lines: Collection[int], copy: Any) -> Iterator[int]:
    """Define flags with the copy, where that is what a line does; those lines."""
    import ast

    config = sys.modules[_CONFIG]
    names = vars(copy)
    if module is not config:
        names = {name: copy if value is config else value for name, value in vars(module).items()}
    tree = ast.parse(module.__loader__.get_source(module.__name__))  # type: ignore[union-attr]
    found: dict[ast.AST, list[int]] = {}  # one statement may read two variables
    for line in lines:
        found.setdefault(_statement(tree, line), []).append(line)
    for statement, its_lines in found.items():
        call = getattr(statement, "value", None)
        if isinstance(call, ast.Call) and _is_of(copy, call.func, names):
            eval(compile(ast.Expression(call), str(module.__file__), "eval"), names)
            yield from its_lines


def _statement(node: ast.AST, line: int) -> ast.AST:
    """The innermost statement in a line."""
    import ast

    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or 0):
            return _statement(child, line)
    return node


def _is_of(copy: ModuleType, function: ast.expr, names: dict[str, Any]) -> bool:
    """Whether this is `bool_state` or `config.bool_state`, a function of the copy."""
    import ast

    found = None
    if isinstance(function, ast.Name):
        found = names.get(function.id)
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        found = getattr(names.get(function.value.id), function.attr, None)
    return getattr(found, "__globals__", None) is vars(copy)
