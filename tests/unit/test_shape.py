"""Limits on functions and classes, beside those that ruff holds. Files may be of any length."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "mcjax_launch"
LINES = 60
ATTRIBUTES = 20

# What is longer, and why. An entry that is no longer needed has to go.
LONG = {
    "make_plan": "checks all that a command line can get wrong, in the order in which it is reported",
    "run": "the loop over attempts, with what one attempt hands on to the next",
    "reported": "writes the report whichever way a job ends",
}
WIDE = {
    "RankRun": "all that is known of a rank, from its start to its end",
}


def nodes(kind: type, name: str = "", tree: ast.AST | None = None) -> Iterator[tuple[str, ast.AST]]:
    """Each function or class of the package, with its name: `Class.method`."""
    if tree is None:
        for path in sorted(PACKAGE.rglob("*.py")):
            yield from nodes(kind, "", ast.parse(path.read_text()))
        return
    for child in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, kind):
                yield inner, child
        yield from nodes(kind, inner, child)


def lines(function: ast.AST) -> int:
    assert isinstance(function, ast.FunctionDef)
    return (function.end_lineno or 0) - function.lineno + 1


def attributes(cls: ast.AST) -> int:
    """What an object holds that may change: a frozen dataclass is a value, of any size."""
    assert isinstance(cls, ast.ClassDef)
    if any("frozen=True" in ast.unparse(decorator) for decorator in cls.decorator_list):
        return 0
    names = {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for method in cls.body:
        if isinstance(method, ast.FunctionDef) and method.args.args:
            this = method.args.args[0].arg
            names |= {
                node.attr
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == this
            }
    return len(names)


def test_functions_are_short() -> None:
    long = {name for name, node in nodes(ast.FunctionDef) if lines(node) > LINES}
    assert long == set(LONG)


def test_objects_hold_little() -> None:
    wide = {name for name, node in nodes(ast.ClassDef) if attributes(node) > ATTRIBUTES}
    assert wide == set(WIDE)


def test_what_counts() -> None:
    """The limits see what they are meant to see."""
    source = "class A:\n  a: int\n  def f(self):\n    self.b, x = 1, 2\n    self.a += self.c\n"
    tree = ast.parse(source)
    ((_, cls),) = nodes(ast.ClassDef, tree=tree)
    assert attributes(cls) == 2
    ((name, method),) = nodes(ast.FunctionDef, tree=tree)
    assert (name, lines(method)) == ("A.f", 3)
