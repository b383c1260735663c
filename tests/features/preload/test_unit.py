"""--preload: which programs import jax, which variables an import reads; what is said of imports."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records import Clock, journal_of, run_of

from mcjax_launch.features.preload.launcher import PreloadNotes
from mcjax_launch.features.preload.messages import Importing
from mcjax_launch.features.preload.program import Unsuited, find_library

pytestmark = pytest.mark.every_jax

ROOT = Path(__file__).resolve().parents[3]
IMPORTS = {
    "import jax": "jax",
    "import os, jax.numpy as jnp": "jax",
    "from flax import linen": "flax",
    "def main():\n    import optax": "optax",
    "try:\n    import jax\nexcept ImportError:\n    jax = None": "jax",
    "import sys\nif len(sys.argv) > 1:\n    pass\nelse:\n    import equinox": "equinox",
    "with open('x') as f:\n    from jax import jit": "jax",
    "match 1:\n    case 1:\n        import haiku": "haiku",
    "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import jax": "jax",
    "'''import jax'''": "",
    "import jaxtyping": "",
    "from . import jax": "",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax": "jax",
    "# jax": "",
}


def chosen(folder: Path, text: str, *argv: str) -> str:
    (folder / "program.py").write_text(text)
    return find_library(argv or ("python", "program.py"), str(folder), {})


@pytest.mark.parametrize("text", IMPORTS)
def test_programs_that_import_jax_are_recognized(tmp_path: Path, text: str) -> None:
    if IMPORTS[text]:
        assert chosen(tmp_path, text) == f"program.py imports {IMPORTS[text]}"
    else:
        with pytest.raises(Unsuited, match=r"program\.py does not import JAX"):
            chosen(tmp_path, text)


COMMANDS = {
    "python -X dev -W error -O program.py -m x": "",
    "python -m program": "",
    "python -mprogram": "",
    "python -m package.program": "",
    "python package": "",
    "python -c jax": "PROGRAM is not a file",
    "python -": "PROGRAM is not a file",
    "python": "PROGRAM is not a file",
    "python none.py": "none.py: No such file or directory",
    "python -m none": "the source of none is not found",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_program_source_is_found_from_the_command(tmp_path: Path, command: str) -> None:
    (tmp_path / "package").mkdir()
    for name in ("program", "__main__"):
        (tmp_path / "package" / f"{name}.py").write_text("import jax")
    if COMMANDS[command]:
        with pytest.raises(Unsuited, match=COMMANDS[command]):
            chosen(tmp_path, "import jax", *command.split())
    else:
        assert chosen(tmp_path, "import jax", *command.split()).endswith("imports jax")


SETTINGS = {
    "os.environ['JAX_ENABLE_X64'] = '1'": "JAX_ENABLE_X64",
    "os.environ.setdefault('OMP_NUM_THREADS', '1')": "OMP_NUM_THREADS",
    "def f():\n    os.environ.update({'MKL_NUM_THREADS': '1'})": "MKL_NUM_THREADS",
    "os.environ |= dict(OPENBLAS_NUM_THREADS='1')": "OPENBLAS_NUM_THREADS",
    "os.putenv('JAX_PLATFORMS', 'cpu')": "JAX_PLATFORMS",
    "from dotenv import load_dotenv\nload_dotenv()": "load_dotenv",
    "import dotenv\ndotenv.load_dotenv()": "load_dotenv",
    "import settings": "JAX_DEBUG_NANS",
    "import reexports": "JAX_DEBUG_NANS",
    "import config": "OMP_NUM_THREADS",
    "from config import (  # all\n    nothing,\n    base)": "OMP_NUM_THREADS",
    "from config.base import x": "OMP_NUM_THREADS",
    "import config.base as x": "OMP_NUM_THREADS",
    "from config.deep.deeper import x": "OMP_NUM_THREADS",
    "os.environ.update(\n    OMP_NUM_THREADS = str(1))": "OMP_NUM_THREADS",
    "os.environ['JAX_' + 'ENABLE_X64'] = '1'": "JAX_",
    "sys.path.insert(0, 'vendor')": "sys.path",
    "sys.path += ['vendor']": "sys.path",
    "import site; site.addsitedir('vendor')": "addsitedir",
    "import importlib.util": "",
    "print(1)  # beside unused.py": "",
    "    # os.environ['JAX_ENABLE_X64'] = '1'": "",
    '"""Run JAX_PLATFORMS=cpu me.py"""': "",
    "os.environ['XLA_FLAGS'] = '--xla_cpu'": "",
    "print(os.environ['JAX_PROCESS_ID'])": "",
    "TEXT = 'JAX_PLATFORMS=cpu is set by the user'": "",
    "os.environ['CUDA_VISIBLE_DEVICES'] = '0'": "",
}


@pytest.mark.parametrize("text", SETTINGS)
def test_what_imports_of_jax_depend_on_is_found(tmp_path: Path, text: str) -> None:
    """In the program, and in those modules and packages beside it that it imports."""
    for name, source in {
        "config/__init__.py": "from .base import x",
        "config/base.py": "import os; os.environ['OMP_NUM_THREADS'] = '1'",
        "config/deep/__init__.py": "",
        "config/deep/deeper.py": "from .. import base as x",
        "unused.py": "import os; os.environ['OMP_NUM_THREADS'] = '1'",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    (tmp_path / "settings.py").write_text("import os\nos.environ['JAX_DEBUG_NANS'] = '1'")
    (tmp_path / "reexports.py").write_text("from settings import *")
    program = f"import os, sys\n{text}\nimport jax"
    if not SETTINGS[text]:
        assert chosen(tmp_path, program) == "program.py imports jax"
        return
    with pytest.raises(Unsuited, match=rf"\.py names {SETTINGS[text]}, on which imports of jax"):
        chosen(tmp_path, program)


def test_program_that_imports_jax_through_a_module_beside_it_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("import flax.linen as nn")
    assert chosen(tmp_path, "from trainer import Trainer") == "trainer.py imports flax"


def test_packages_beside_an_installed_program_are_not_its_own(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.13" / "site-packages"
    for name, text in {
        "pkg/__init__.py": "from . import conf",
        "pkg/conf.py": "",
        "pkg/train.py": "import jax, pkg.conf",
        "jax/__init__.py": "import os; os.environ['JAX_PLATFORMS']",
    }.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    command = str(tmp_path / "bin" / "python"), "-m", "pkg.train"
    assert chosen(tmp_path, "", *command) == "train.py imports jax"
    (packages / "pkg" / "conf.py").write_text("KEY = 'JAX_PLATFORMS'")
    with pytest.raises(Unsuited, match=r"conf\.py names JAX_PLATFORMS"):
        chosen(tmp_path, "", *command)


def test_long_import_is_reported_once() -> None:
    notes: list[str] = []
    job = SimpleNamespace(preload=("abc", "mine"))
    console = SimpleNamespace(note=notes.append, show_detail=None)
    state, clock = run_of(2), Clock()
    launcher: Any = SimpleNamespace(
        job=job, state=state, console=console, journal=journal_of(state, clock)
    )
    part, link = PreloadNotes(launcher), SimpleNamespace(host=SimpleNamespace(name="h"))
    for now in map(float, range(100)):
        clock.now = now
        if module := {10.0: "abc", 35.0: "mine"}.get(now):
            part.on_message(link, Importing(module), now)  # type: ignore[arg-type]
        part.expire(now)
    assert notes == ["--preload: still importing mine for 5 s; Ctrl-\\ shows where"]
