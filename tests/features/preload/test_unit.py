"""--preload: which programs import jax, which variables an import reads; what is said of imports."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records import run_of

from mcjax_launch.features.preload.agent.program import Unsuited, choose
from mcjax_launch.features.preload.choice import LIBRARIES
from mcjax_launch.features.preload.hook.variable_reads import VariableReads, find_first_read
from mcjax_launch.features.preload.launcher import PreloadNotes
from mcjax_launch.features.preload.messages import Importing

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
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax": "",
    "# jax": "",
}


def chosen(folder: Path, text: str, *argv: str) -> tuple[str, dict[str, str]]:
    (folder / "program.py").write_text(text)
    choice = choose(argv or ("python", "program.py"), str(folder), {"SET": "1"}, LIBRARIES)
    return choice.why, dict(choice.settings)


@pytest.mark.parametrize("text", IMPORTS)
def test_programs_that_import_jax_are_recognized(tmp_path: Path, text: str) -> None:
    if IMPORTS[text]:
        assert chosen(tmp_path, text)[0] == f"program.py imports {IMPORTS[text]}"
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
        assert chosen(tmp_path, "import jax", *command.split())[0].endswith("imports jax")


def test_unparsable_program_is_not_preloaded(tmp_path: Path) -> None:
    with pytest.raises(Unsuited, match="cannot be parsed"):
        chosen(tmp_path, "import jax\nprint 1")


SETTINGS = {
    "os.environ['A'] = '1'\nenviron['B'] = '2'": {"A": "1", "B": "2"},
    "os.environ.setdefault('A', '1')\nos.environ.setdefault('SET', '2')": {"A": "1"},
    "os.environ['A'] = '1'\nos.environ.setdefault('A', '2')": {"A": "1"},
    "os.environ['SET'] = '1'": {},
    "os.environ['A'] = str(1)\nos.environ[A] = '1'\nother['A'] = '1'": {},
    "if A:\n    os.environ['A'] = '1'": {},
    "import jax\nos.environ['A'] = '1'": {},
    "os.environ['A'] = 'two\\nlines'": {},
}


@pytest.mark.parametrize("text", SETTINGS)
def test_constant_settings_before_the_import_are_found(tmp_path: Path, text: str) -> None:
    """Constants only, and for certain."""
    assert chosen(tmp_path, f"import os\n{text}\nimport jax")[1] == SETTINGS[text]


READS = {
    "os.environ['OWN']": "OWN",
    "os.environ.get('OWN')": "OWN",
    "os.environ.setdefault('OWN', 'x')": "OWN",
    "os.getenv('NONE')": "NONE",
    "os.environb.get(b'OWN')": "OWN",
    "'OWN' in os.environ": "OWN",
    "[*os.environ.values()]": "*",
    "dict(os.environ)": "*",
    "os.environ.copy()": "*",
}


@pytest.mark.parametrize("expression", READS)
def test_read_variables_are_collected(monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    monkeypatch.setenv("OWN", "x")
    with VariableReads() as reads:
        eval(expression, {"os": os})
    assert READS[expression] in reads.names
    assert ("*" in reads.names) is (READS[expression] == "*")


# What a program does, and whether it may be seen outside.
EFFECTS = {
    "open('file').read(); open(0); os.open('.', os.O_RDONLY); open('/dev/null').read()": False,
    "open('none') if os.path.exists('none') else os.listdir('.'), [*os.scandir()], os.walk('.')": False,
    "import argparse, json, logging, tempfile, ctypes.util, module": False,
    "logging.basicConfig(); logging.getLogger('x').debug('x')": False,
    "os.environ['A'] = '1'; os.putenv('B', '2'); os.unsetenv('B'); os.chdir('.')": False,
    "threading.Thread(target=len, args=('',)).start(); time.sleep(0)": False,
    "open('file', 'a')": True,
    "os.open('file', os.O_RDONLY | os.O_CREAT)": True,
    "os.open('fifo', os.O_RDONLY | os.O_NONBLOCK)": True,
    "os.mkdir('made')": True,
    "os.rename('made', 'renamed')": True,
    "os.rmdir('renamed')": True,
    "os.utime('file')": True,
    "os.chmod('file', 0o600)": True,
    "os.system('true')": True,
    "subprocess.Popen(['true']).wait()": True,
    "os.kill(os.getpid(), 0)": True,
    "socket.socket().bind(('127.0.0.1', 0)); socket.gethostbyname('localhost')": False,
    "socket.socket().connect_ex(('127.0.0.1', 9))": True,
    "socket.socket(socket.AF_UNIX).bind('socket')": True,
}
WATCHES = """
import logging, os, socket, subprocess, sys, threading, time
sys.path.insert(0, ".")
from mcjax_launch.features.preload.hook.effects import EffectWatch
for text in {}:
    watch = EffectWatch()
    exec(text)
    watch.stop()
    os.mkdir("later"), os.rmdir("later")
    print(watch.has_effect, watch.compiled)
"""


def test_effects_of_a_program_are_noticed(tmp_path: Path) -> None:
    """In another process, because an audit hook stays for good."""
    (tmp_path / "file").touch()
    (tmp_path / "module.py").touch()
    os.mkfifo(tmp_path / "fifo")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", WATCHES.format([*EFFECTS])]
    said = subprocess.run(command, cwd=tmp_path, env=env, check=True, stdout=subprocess.PIPE)
    lines = said.stdout.decode().splitlines()
    assert [line.startswith("True") for line in lines] == [*EFFECTS.values()], lines
    [compiled] = [path.stat().st_size for path in tmp_path.glob("__pycache__/module.*")]
    assert str(compiled) in lines[2]


@pytest.mark.parametrize(
    ("changed", "read", "first"),
    [
        ("OWN", {"OTHER"}, ""),
        ("OWN", {"OWN"}, "OWN"),
        ("OWN", {"*"}, "OWN"),
        ("OMP_NUM_THREADS", set(), "OMP_NUM_THREADS"),
        ("CUDA_VISIBLE_DEVICES", set(), "CUDA_VISIBLE_DEVICES"),
        ("NCCL_DEBUG", set(), "NCCL_DEBUG"),
    ],
)
def test_variable_that_may_have_been_read_is_named(
    changed: str, read: set[str], first: str
) -> None:
    assert find_first_read([changed], read) == first


def test_long_import_is_reported_once() -> None:
    notes: list[str] = []
    job = SimpleNamespace(preload=("abc", "mine"))
    console = SimpleNamespace(note=notes.append, show_detail=None)
    launcher: Any = SimpleNamespace(job=job, state=run_of(2), console=console)
    part, link = PreloadNotes(launcher), SimpleNamespace(host=SimpleNamespace(name="h"))
    for now in map(float, range(100)):
        if module := {10.0: "abc", 35.0: "mine"}.get(now):
            part.on_message(link, Importing(module), now)  # type: ignore[arg-type]
        part.expire(now)
    assert notes == ["--preload: still importing mine for 5 s; Ctrl-\\ shows where"]
