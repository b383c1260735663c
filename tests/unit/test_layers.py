"""Imports run one way, between packages and in every module of them."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mcjax_launch"
# From the ground up. A package imports those of lower floors; on one floor none imports another.
FLOORS = (
    ("__init__", "protocol", "jax_messages", "ranks"),
    ("errors",),
    ("job", "run"),
    ("transport", "console", "diagnosis", "schedulers"),
    ("report", "watchdog"),
    ("launcher",),
    ("cli",),
    ("__main__",),
)
# What runs in other processes: streamed, and imported by nobody.
STREAMED = ("agent", "hook")
FOREIGN = {"cli": {"click"}, "hook": {"jax", "jaxlib", "sitecustomize"}}
OURS = "mcjax_launch"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """The package, or the small module at the top, that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, relative ones resolved; of ours below the package."""
    package = [OURS, *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def ours(name: str) -> str | None:
    """The package of ours that a dotted name leads to; None for another's."""
    first, _, rest = name.partition(".")
    # The hook finds us under another name, beside a program's own import of this package.
    if first not in (OURS, f"_{OURS}"):
        return None
    second = rest.partition(".")[0]
    known = (PACKAGE / second).is_dir() or (PACKAGE / f"{second}.py").exists()
    return second if second and known else "__init__"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downwards(path: Path) -> None:
    here = room(path)
    allowed = {here} | ({"protocol"} if here in STREAMED else set())
    if here not in STREAMED:
        allowed |= {name for rooms in FLOORS[: floor(here)] for name in rooms}
    for name in imported(path):
        package = ours(name)
        if package is not None:
            # The first module that runs on a host names the agent as the host knows it.
            assert package in allowed, f"{path.relative_to(PACKAGE)} imports {name}"
        else:
            top = name.partition(".")[0]
            known = sys.stdlib_module_names | FOREIGN.get(here, set())
            assert top in known, f"{path.relative_to(PACKAGE)} imports {name}"


def test_the_top_level_is_the_architecture() -> None:
    rooms = {room(path) for path in modules()}
    assert rooms == {name for rooms in FLOORS for name in rooms} | set(STREAMED)
    assert len(list(PACKAGE.glob("*.py"))) <= 5


def test_an_import_upwards_in_a_deep_module_is_seen(tmp_path: Path) -> None:
    """The check itself would not notice nothing at all."""
    deep = PACKAGE / "schedulers" / "slurm.py"
    assert any(ours(name) == "job" for name in imported(deep))
    assert floor("cli") > floor("schedulers")
