"""Limits on functions and classes, beside those that ruff holds. Files may be of any length."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

PACKAGE = Path(__file__).parents[2] / "mcjax_launch"
LINES = 60
ATTRIBUTES = 20
# Bases of immutable values, and of what only types see.
VALUES = {"Value", "OptionGroup", "Options", "Nested", "HookMessage", "ToAgent", "Question"}
VALUES |= {"ToLauncher", "JobEffect", "Effect", "TypedDict"}

# What goes beyond a limit, and why. An entry that is no longer needed has to go.
LONG = {
    "launcher/restarts.py run": "the loop over attempts, with what one hands on to the next",
}
WIDE = {"journal/state.py RunState": "all that is known of a run, of which there is one"}
LATE: dict[str, str] = {}

Modules = dict[str, ast.Module]
Node = TypeVar("Node", bound=ast.AST)


@cache
def parsed() -> Modules:
    """Every module of the package, by its path."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in files}


def nodes(kind: type[Node], modules: Modules) -> Iterator[tuple[str, Node]]:
    """Each function or class, with where it is: `folder/module.py Class.method`."""
    for module, tree in modules.items():
        for name, node in _inside(tree, ""):
            if isinstance(node, kind):
                yield f"{module} {name}", node


def _inside(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr):  # holds neither
            continue
        inner = name
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}".lstrip(".")
            yield inner, child
        yield from _inside(child, inner)


def lines(function: ast.FunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def declared(cls: ast.ClassDef) -> set[str]:
    """The names that a class gives to its objects in its body."""
    names = set()
    for node in cls.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def stored(cls: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Each method that sets an attribute of its object, and the attribute."""
    for method in cls.body:
        if isinstance(method, ast.FunctionDef) and method.args.args:
            this = method.args.args[0].arg
            for node in ast.walk(method):
                match node:
                    case ast.Attribute(ast.Name(name), attribute, ast.Store()) if name == this:
                        yield method.name, attribute


def attributes(cls: ast.ClassDef) -> int:
    """What an object holds that may change: a value may have any size."""
    bases = {ast.unparse(base) for base in cls.bases}
    if bases & VALUES or any(
        "frozen=True" in ast.unparse(decorator) for decorator in cls.decorator_list
    ):
        return 0
    annotated = {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return len(annotated | {name for _, name in stored(cls)})


def late(modules: Modules) -> set[str]:
    """The attributes that an object does not have from the start, as `folder/module.py Class.a`."""
    classes = dict(nodes(ast.ClassDef, modules))
    by_name = {cls.name: cls for cls in classes.values()}

    def early(cls: ast.ClassDef) -> set[str]:
        names = [base.id for base in cls.bases if isinstance(base, ast.Name)]
        bases = [by_name[name] for name in names if name in by_name]
        own = {name for method, name in stored(cls) if method == "__init__"} | declared(cls)
        return own.union(*map(early, bases))

    return {
        f"{where}.{name}"
        for where, cls in classes.items()
        for name in {name for _, name in stored(cls)} - early(cls)
    }


def test_functions_are_short() -> None:
    long = {name for name, node in nodes(ast.FunctionDef, parsed()) if lines(node) > LINES}
    assert long == set(LONG)


def test_objects_have_few_attributes() -> None:
    wide = {name for name, node in nodes(ast.ClassDef, parsed()) if attributes(node) > ATTRIBUTES}
    assert wide == set(WIDE)


def test_objects_have_all_their_attributes_from_the_start() -> None:
    assert late(parsed()) == set(LATE)


def test_fields_are_known_without_evaluating_annotations() -> None:
    """Python 3.14 keeps no `__annotations__` in a class whose module does not ask for strings."""
    modules = parsed()
    bases = {*VALUES, "Changing"}
    with_fields = {
        where.split(" ")[0]
        for where, cls in nodes(ast.ClassDef, modules)
        if bases & {ast.unparse(base).rpartition(".")[2] for base in cls.bases}
    }
    strings = {name for name in with_fields if _asks_for_strings(modules[name])}
    assert with_fields - strings == set()


def _asks_for_strings(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in module.body
    )


def list_absent_arguments(node: ast.ClassDef | ast.FunctionDef) -> set[str]:
    """The arguments in a docstring that the function, or the class's `__init__`, does not have."""
    section = re.search(r"(?s)\bArgs:\n(.*?)(\n\n\S|$)", ast.get_docstring(node) or "")
    makers = [child for child in ast.walk(node) if getattr(child, "name", "") == "__init__"]
    functions = makers if isinstance(node, ast.ClassDef) else [node]
    if not section or not functions:  # a class without one has fields
        return set()
    names = {name for name, _ in re.findall(r"(?m)^ {4}(\w+)(, \w+)*:", section[1])}
    return names - {arg.arg for arg in ast.walk(functions[0]) if isinstance(arg, ast.arg)}


def test_documented_arguments_exist() -> None:
    modules = parsed()
    found: list[tuple[str, ast.ClassDef | ast.FunctionDef]] = []
    found += [*nodes(ast.ClassDef, modules), *nodes(ast.FunctionDef, modules)]
    absent = {where: names for where, node in found if (names := list_absent_arguments(node))}
    assert absent == {}


def test_class_names_are_unique() -> None:
    """One word for one thing, also for who looks for it."""
    names = [node.name for _, node in nodes(ast.ClassDef, parsed())]
    assert len(names) > 400
    assert [name for name, times in Counter(names).items() if times > 1] == []
