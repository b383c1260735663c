"""Imports run one way, between packages and in every module of them."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mcjax_launch"
# From the ground up. A room imports those of lower floors; on one floor none imports another.
FLOORS = (
    ("wire", "ranks", "wording"),
    ("machine",),
    ("errors", "options"),
    ("job",),
    ("features",),  # the index of them all
    ("transport",),
    ("journal",),
    ("console",),
    ("launcher",),
    ("request",),
    ("cli",),
    ("__main__",),
    # The core ends here: the rooms above are loaded by name, if they are there.
    ("features.*",),
    ("python",),
    ("features.*.client",),
    ("features.notebook", "features.pytest"),  # for Python programs alone
    ("__init__",),
)
# What runs in other processes, and whatever it may import: streamed, and imported by nobody else,
STREAMED = {
    "wire": set(),
    "machine": {"wire"},
    "agent": {"machine", "wire"},
    "hook": {"features", "machine", "wire"},
    "features/messages": {"wire"},
    "features/program": {"machine", "wire"},
    "features/agent": {"agent", "machine", "wire"},
    "features/hook": {"hook", "machine", "wire"},
}
# but for the first lines, which may become this machine's agent.
BECOMES = {
    "__main__": {"agent"},
    "features": {"job"},
}
FOREIGN = {
    "agent": {"psutil"},
    "cli": {"click"},
    "features.check": {"click", "jax", "numpy"},  # its program runs in ranks
    "features.notebook": {"IPython", "click"},
    "features.pytest": {"_pytest", "coverage", "jax", "pytest"},
    "features.session": {"cloudpickle", "matplotlib"},
    "features.session.client": {"cloudpickle"},
    "features.mtls": {"cryptography"},
    "hook": {
        "cloudpickle",
        "jax",
        "jaxlib",
        "matplotlib",
        "numpy",
        "sitecustomize",
        "usercustomize",
    },
    "features/hook": {"cloudpickle", "jax", "jaxlib", "numpy", "sitecustomize", "usercustomize"},
}
OURS = "mcjax_launch"


def modules(root: Path) -> list[str]:
    """Every module of a package, as a path below its folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.py"))


def room(module: str) -> str:
    """The package, the feature, or the small module at the top of a file."""
    words = Path(module).with_suffix("").parts
    if words[0] != "features" or words[1:] in ((), ("__init__",)):
        return words[0]
    return ".".join(words[: 3 if words[2:3] == ("client",) else 2])


def side(module: str) -> str | None:
    """What a streamed file is: a room, or a part of a feature; None for others."""
    here, words = room(module), Path(module).with_suffix("").parts
    if here in STREAMED:
        return here
    part = f"features/{words[2]}" if here.startswith("features.") and len(words) > 2 else ""
    return part if part in STREAMED else None


@cache
def imported(root: Path, module: str) -> list[str]:
    """The dotted names that a file imports anywhere in it, relative ones resolved."""
    return imports_of((root / module).read_text(), module)


def imports_of(source: str, module: str) -> list[str]:
    """The dotted names that a module with this source imports."""
    package = [OURS, *Path(module).parts[:-1]]
    return [name for node in ast.walk(ast.parse(source)) for name in _names(node, package)]


def _names(node: ast.AST, package: list[str]) -> Iterator[str]:
    """The dotted names of an import in a package."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        stem = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{stem}.{alias.name}" for alias in node.names)


def ours(root: Path, name: str) -> str | None:
    """The file of ours that a dotted name leads to; None for another's."""
    first, _, rest = name.partition(".")
    # The hook finds us under another name, beside a program's own import of this package.
    if first not in (OURS, f"_{OURS}"):
        return None
    words = rest.split(".")
    for depth in range(len(words), 0, -1):
        path = Path(*words[:depth])
        if (root / path).is_dir():
            return str(path / "__init__.py")
        if (root / path).with_suffix(".py").exists():
            return str(path.with_suffix(".py"))
    return "__init__.py"


def may_import(here: str, there: str) -> bool:
    """Whether a file may import another of ours."""
    if here == there or (room(here) == room(there) and side(here) is None is side(there)):
        return True
    if (mine := side(here)) is not None:
        other = side(there)
        if mine in ("features/agent", "features/hook") and room(here) == room(there):
            return other in (mine, "features/messages", "features/program", None) and (
                other is not None or _is_index(there)
            )
        return room(there) == room(here) or (other or room(there)) in STREAMED[mine]
    if side(there) not in (None, "machine", "wire", "features/messages", "features/program"):
        return room(there) in BECOMES.get(room(here), ())
    return room(there) == room(here) or room(there) in allowed(room(here))


def _is_index(module: str) -> bool:
    return Path(module).name == "__init__.py"


@cache
def allowed(here: str) -> set[str]:
    """The rooms that one that is not streamed may import."""
    floor = next(number for number, rooms in enumerate(FLOORS) if _is_among(here, rooms))
    rooms = {room(module) for module in modules(PACKAGE)}
    below = {name for name in rooms if any(_is_among(name, rooms) for rooms in FLOORS[:floor])}
    return {here, *below, *BECOMES.get(here, ())}


def _is_among(here: str, rooms: tuple[str, ...]) -> bool:
    """Whether a room is named on a floor, or is a feature that is named on none."""
    if here.endswith(".client"):
        return "features.*.client" in rooms
    named = any(here in floor for floor in FLOORS)
    return here in rooms or (here.startswith("features.") and not named and "features.*" in rooms)


def wrong_imports(module: str, names: list[str]) -> list[str]:
    """What a module imports, but may not, of these names."""
    known = FOREIGN.get(side(module) or "", set()) | FOREIGN.get(room(module), set())
    foreign = sys.stdlib_module_names | {"annotationlib"} | known  # that is Python 3.14's
    return [
        f"{module} imports {name}"
        for name in names
        if (
            name.partition(".")[0] not in foreign
            if (there := ours(PACKAGE, name)) is None
            else not may_import(module, there)
        )
    ]


@pytest.mark.parametrize("module", modules(PACKAGE))
def test_imports_run_downwards(module: str) -> None:
    wrong = wrong_imports(module, imported(PACKAGE, module))
    assert wrong == [], "a room imports those below it (FLOORS), and no feature imports another"


def test_the_top_level_is_the_architecture() -> None:
    rooms = {room(module) for module in modules(PACKAGE)}
    features = {name for name in rooms if name.startswith("features.")}
    streamed = {name for name in STREAMED if "/" not in name}
    floors = {name for rooms in FLOORS for name in rooms if not name.startswith("features.")}
    assert rooms - features == floors | streamed
    assert len(list(PACKAGE.glob("*.py"))) <= 5


def test_the_core_names_no_feature() -> None:
    """Neither by an import, nor by a string that is a feature's name or has its module."""
    features = {path.name for path in (PACKAGE / "features").iterdir() if path.name[0] != "_"}
    assert "debugging" in features
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("features", "python", "__init__.py"):
            continue
        tree = ast.parse(path.read_text())
        words = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        } - {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        imports = imported(PACKAGE, str(path.relative_to(PACKAGE)))
        named = {
            name
            for name in features
            if name in words or any(f"features.{name}" in word for word in {*words, *imports})
        }
        assert not named, f"{path}: ask for it through options/features.py, or rename the feature"


# In another room than the only module that imports it, and why.
ALONE = {
    "transport/staged_paths.py": "undoes what the staging beside it does",
}


def test_module_is_in_the_folder_of_its_only_importer() -> None:
    """Unless there is a reason."""
    users: dict[str, set[str]] = {module: set() for module in modules(PACKAGE)}
    for module in users:
        for name in imported(PACKAGE, module):
            if (there := ours(PACKAGE, name)) is not None and there != module:
                users[there].add(module)
    alone = {
        module
        for module, (user, *others) in ((used, [*them]) for used, them in users.items() if them)
        if not others and not _is_index(module) and room(module) != room(user)
    }
    alone = {
        module for module in alone if not module.startswith("features/")
    }  # as it is a feature's
    assert alone == set(ALONE)


# Where an import is added, the import, and whether that is one too many.
PLANTED = {
    "upwards": ("job/slurm.py", "from mcjax_launch.cli import command", True),
    "upwards, relative": ("journal/state.py", "from ..launcher import launcher", True),
    "on one floor": ("features/watch/saves.py", "import mcjax_launch.features.detached.jobs", True),
    "of explanations, by the core": ("launcher/launcher.py", "from mcjax_launch.features.explain import rules", True),
    "of the report, by the core": ("request/ready.py", "from mcjax_launch.features.report import files", True),
    "of the API, by the core": ("cli/command.py", "import mcjax_launch.python.job", True),
    "of the core, by explanations": ("features/explain/rules.py", "import mcjax_launch.transport.pool", False),
    "of what is streamed": ("launcher/launcher.py", "import mcjax_launch.agent.main", True),
    "of the hook, by what becomes the agent": ("__main__.py", "import mcjax_launch.hook.exits", True),
    "out of what is streamed": ("agent/main.py", "from ...job import hosts", True),
    "in the hook, by its other name": ("hook/exits.py", "import _mcjax_launch.journal.state", True),
    "of another feature": ("features/stdin/launcher.py", "from mcjax_launch.features.debugging import queue", True),
    "of another feature's messages": ("features/setup/agent.py", "from ..debugging.messages import DebuggerStopped", True),
    "of a feature, by the launcher": ("launcher/startup.py", "from mcjax_launch.features.preload import launcher", True),
    "of a feature, by the agent": ("agent/agent.py", "from ...features.preload.agent import forking", True),
    "of a feature, by the hook": ("hook/exits.py", "from ...features.debugging import messages", True),
    "of a feature's other side": ("features/debugging/agent.py", "from . import launcher", True),
    "of the agent, by a feature's launcher": ("features/debugging/launcher.py", "from mcjax_launch.agent import agent", True),
    "of a feature's messages, by its client": ("features/session/client/run.py", "from mcjax_launch.features.session import messages", False),
    "of the API, by a feature": ("features/session/launcher.py", "from mcjax_launch.python import job", True),
    "of a third party": ("features/report/run_record.py", "import numpy.linalg", True),
    "of click elsewhere": ("job/plan.py", "import click", True),
    "of click": ("cli/command.py", "import click", False),
    "downwards": ("cli/command.py", "import mcjax_launch.job.plan", False),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_import_is_found(name: str) -> None:
    module, statement, is_wrong = PLANTED[name]
    source = (PACKAGE / module).read_text()
    planted = f"{source}\n\ndef planted() -> None:\n    {statement}\n"
    assert wrong_imports(module, imports_of(source, module)) == []
    assert len(wrong_imports(module, imports_of(planted, module))) == int(is_wrong)


# --- circles ---


def circle(root: Path) -> list[str]:
    """Modules of which each imports the next, and the last the first; empty if there are none."""
    ahead = {
        module: {path for name in imported(root, module) if (path := ours(root, name))} - {module}
        for module in modules(root)
    }
    while ahead:
        leaves = {module for module, loaded in ahead.items() if not loaded & ahead.keys()}
        if not leaves:
            return _around(ahead)
        ahead = {module: loaded for module, loaded in ahead.items() if module not in leaves}
    return []


def _around(ahead: dict[str, set[str]]) -> list[str]:
    path = [min(ahead)]
    while path[-1] not in path[:-1]:
        path.append(min(ahead[path[-1]] & ahead.keys()))
    return path[path.index(path[-1]) : -1]


def test_imports_have_no_cycle() -> None:
    """Not even of those that are made later, or for types alone."""
    assert circle(PACKAGE) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from .first import A",
        "import mcjax_launch.wire.first",
        "class B:\n    from . import first",
        "if TYPE_CHECKING:\n    from .first import A",
    ],
)
def test_planted_cycle_is_found(tmp_path: Path, statement: str) -> None:
    wire = tmp_path / "wire"
    wire.mkdir()
    for module, text in (("third", "from . import first"), ("first", "from .second import B")):
        (wire / f"{module}.py").write_text(text)
    (wire / "second.py").write_text(statement)
    assert set(circle(tmp_path)) == {"wire/first.py", "wire/second.py"}


def test_reading_the_tests_imports_no_jax() -> None:
    """Each of pytest's workers reads them all: a second and 150 MB for each."""
    tests = PACKAGE.parent / "tests"
    found = [
        str(path.relative_to(tests))
        for path in sorted({*tests.glob("*.py"), *tests.rglob("test_*.py")})
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        and any(name.split(".")[0] == "jax" for name in names_of(statement))
    ]
    assert found == []


def names_of(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that it imports by their whole names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [] if statement.level else [statement.module or ""]
