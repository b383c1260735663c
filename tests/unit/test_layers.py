"""Imports run one way."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "mcjax_launch"
# A module may import those of lower layers, and of its own.
LAYERS = [
    {"errors", "words", "__init__"},
    {"agent"},
    {"bootstrap", "collapse", "hosts", "lines", "placeholders", "programs"},
    {"stacks", "style"},
    {"history", "plan", "sync"},
    {"lost_peer"},
    {"tracebacks"},
    {"noise", "victim"},
    {"advice", "blame", "calm", "labels", "overdue", "picture", "rendezvous", "sink"},
    {"console", "limits", "missing", "signals", "verdict", "transport"},
    {"record"},
    {"link"},
    {"connector", "dump"},
    {"preparation"},
    {"launcher"},
    {"engines", "report", "restarts"},
    {"request"},
    {"cli"},
    {"__main__"},
]
FOREIGN = {"cli": {"click"}}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def layer(module: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if module in names)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_the_launcher_imports_downwards(path: Path) -> None:
    for name in imported(path):
        top, *rest = name.split(".")
        if top == "mcjax_launch":
            below = rest[0] if rest and rest[0] != "__version__" else "__init__"
            if (PACKAGE / f"{below}.py").exists() or (PACKAGE / below).is_dir():
                assert layer(below) <= layer(path.stem), f"{path.stem} imports {name}"
        else:
            assert top in sys.stdlib_module_names or top in FOREIGN.get(path.stem, set()), name


@pytest.mark.parametrize("folder", ["agent", "rank"])
def test_what_runs_elsewhere_needs_nothing_of_ours(folder: str) -> None:
    own = {path.stem for path in (PACKAGE / folder).glob("*.py")} | {"mcjax_launch"}
    allowed = sys.stdlib_module_names | own | ({"jax", "jaxlib"} if folder == "rank" else set())
    for path in (PACKAGE / folder).glob("*.py"):
        for name in imported(path):
            assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
