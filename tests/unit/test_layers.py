"""Imports run one way, between packages and in every module of them."""

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mcjax_launch"
# From the ground up. A package imports those of lower floors; on one floor none imports another.
FLOORS = (
    ("__init__", "protocol", "jax_messages", "ranks", "wording"),
    ("errors", "options"),
    ("job", "runs"),
    ("schedulers",),
    ("transport", "console", "diagnosis"),
    ("report", "watchdog"),
    ("launcher",),
    ("request", "check"),
    ("api",),
    ("cli",),
    ("__main__",),
    ("pytest_plugin",),
)
# What runs in other processes: streamed, and imported by nobody,
STREAMED = ("agent", "hook")
# but for the first lines, which may become this machine's agent; and who imports the package itself
# finds the API there, when it is used.
BECOMES = {"__main__": {"agent"}, "__init__": {"api"}}
FOREIGN = {
    "agent": {"psutil"},
    "api": {"cloudpickle"},
    "cli": {"click"},
    "check": {"jax", "numpy"},  # its program runs in ranks
    "hook": {"cloudpickle", "jax", "jaxlib", "sitecustomize", "usercustomize"},
    "pytest_plugin": {"pytest", "_pytest", "pytest_cov", "coverage", "jax"},
}
OURS = "mcjax_launch"


def modules(root: Path) -> list[str]:
    """Every module of a package, as a path below its folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.py"))


def room(module: str) -> str:
    """The package, or the small module at the top, that a file belongs to."""
    return Path(module).parts[0].removesuffix(".py")


def imported(root: Path, module: str) -> Iterator[str]:
    """The dotted names that a file imports anywhere in it, relative ones resolved."""
    package = [OURS, *Path(module).parts[:-1]]
    for node in ast.walk(ast.parse((root / module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def ours(root: Path, name: str) -> str | None:
    """The package of ours that a dotted name leads to; None for another's."""
    first, _, rest = name.partition(".")
    # The hook finds us under another name, beside a program's own import of this package.
    if first not in (OURS, f"_{OURS}"):
        return None
    second = rest.partition(".")[0]
    known = (root / second).is_dir() or (root / f"{second}.py").exists()
    return second if second and known else "__init__"


def allowed(here: str) -> set[str]:
    """The packages that a package may import."""
    if here in STREAMED:
        return {here, "protocol"}
    floor = next(number for number, rooms in enumerate(FLOORS) if here in rooms)
    below = {name for rooms in FLOORS[:floor] for name in rooms}
    return {here, *below, *BECOMES.get(here, ())}


def wrong_imports(root: Path, module: str) -> list[str]:
    """What a module of the package in the folder `root` imports, but may not."""
    here = room(module)
    foreign = sys.stdlib_module_names | FOREIGN.get(here, set())
    return [
        f"{module} imports {name}"
        for name in imported(root, module)
        if (
            name.partition(".")[0] not in foreign
            if (package := ours(root, name)) is None
            else package not in allowed(here)
        )
    ]


@pytest.mark.parametrize("module", modules(PACKAGE))
def test_imports_run_downwards(module: str) -> None:
    assert wrong_imports(PACKAGE, module) == []


def test_the_top_level_is_the_architecture() -> None:
    rooms = {room(module) for module in modules(PACKAGE)}
    assert rooms == {name for rooms in FLOORS for name in rooms} | set(STREAMED)
    assert len(list(PACKAGE.glob("*.py"))) <= 5


# Where an import is added, the import, and what is said of it; nothing where it is allowed.
PLANTED = {
    "upwards": (
        "schedulers/slurm.py",
        "from mcjax_launch.cli import command",
        "mcjax_launch.cli.command",
    ),
    "upwards, relative": ("runs/state.py", "from ..launcher import launcher", "launcher.launcher"),
    "on one floor": (
        "console/sink.py",
        "import mcjax_launch.kernel.transport.pool",
        "transport.pool",
    ),
    "of what is streamed": (
        "kernel/launcher/launcher.py",
        "import mcjax_launch.kernel.agent.main",
        "mcjax_launch.kernel.agent.main",
    ),
    "of the agent, by the command line": (
        "cli/command.py",
        "import mcjax_launch.kernel.agent.main",
        "mcjax_launch.kernel.agent.main",
    ),
    "of the hook, by what becomes the agent": (
        "__main__.py",
        "import mcjax_launch.kernel.hook.exits",
        "mcjax_launch.kernel.hook.exits",
    ),
    "out of what is streamed": ("kernel/agent/main.py", "from ..job import hosts", "job.hosts"),
    "in the hook, by its other name": (
        "kernel/hook/exits.py",
        "import _mcjax_launch.runs.state",
        "_mcjax_launch.runs.state",
    ),
    "of a third party": ("report/record.py", "import numpy.linalg", "numpy.linalg"),
    "of click elsewhere": ("job/plan.py", "import click", "click"),
    "of click": ("cli/command.py", "import click", ""),
    "downwards": ("cli/command.py", "import mcjax_launch.job.plan", ""),
}
WHERE = {
    "in a function": "\n\ndef planted() -> None:\n    {}\n",
    "for types alone": "\n\nif TYPE_CHECKING:\n    {}\n",
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_is_seen(tmp_path: Path, name: str, where: str) -> None:
    module, statement, found = PLANTED[name]
    copy = tmp_path / OURS
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / module).open("a") as file:
        file.write(WHERE[where].format(statement))
    assert module in modules(copy)
    wrong = wrong_imports(copy, module)
    if not found:
        assert wrong == []
    else:
        [line] = wrong
        assert line.startswith(f"{module} imports ") and line.endswith(found)
