"""Whose a line of code is."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.hook import user_lines
from mcjax_launch.wire import source_lines
from mcjax_launch.wire.source_lines import OURS, PYTHON, USER, find_owner, shorten_path

pytestmark = pytest.mark.every_jax

SITE = "/opt/venv/lib/python3.11/site-packages"
OWNERS = {
    "/home/me/train.py": USER,
    "<string>": USER,
    "/home/me/lib/python/train.py": USER,
    "/home/me/lib/python3.11-notes/train.py": USER,
    "/home/me/lib/python3.py": USER,
    "/home/me/site-packages.py": USER,
    "/home/me/jax/jaxlib/train.py": USER,
    f"{SITE}/jax/_src/array.py": "jax",
    f"{SITE}/jaxlib/xla_client.py": "jaxlib",
    f"{SITE}/six.py": "six",
    "/usr/lib/python3/dist-packages/numpy/core.py": "numpy",
    "/opt/site-packages/outer/dist-packages/inner/x.py": "inner",
    "/usr/lib/python3.11/threading.py": PYTHON,
    "/usr/lib64/python3.9/asyncio/runners.py": PYTHON,
    "/opt/py/lib/python3.13t/threading.py": PYTHON,
    "<frozen runpy>": PYTHON,
    sysconfig.get_path("stdlib") + "/threading.py": PYTHON,
    f"{SITE}/mcjax_launch/hook/exits.py": OURS,
    f"{SITE}/mcjax_launch/hook/site/sitecustomize.py": OURS,
    f"{SITE}/mcjax_launch/wire/codec.py": OURS,
    "/tmp/mcjax-1/mcjax_launch/hook/exits.py": OURS,
    f"{SITE}/mcjax_launch/cli/command.py": "mcjax_launch",
}


@pytest.mark.parametrize("file", OWNERS)
def test_owner_of_a_file_is_found(file: str) -> None:
    assert find_owner(file) == OWNERS[file]
    assert source_lines.is_users(file) == (OWNERS[file] == USER)
    assert source_lines.is_jax(file) == (OWNERS[file] in ("jax", "jaxlib"))


def test_a_librarys_file_is_shown_without_its_folder() -> None:
    short = {
        f"{SITE}/jax/_src/array.py": "jax/_src/array.py",
        "/usr/lib/python3/dist-packages/numpy/core.py": "numpy/core.py",
        "/usr/lib/python3.11/asyncio/runners.py": "asyncio/runners.py",
        "/home/me/train.py": "/home/me/train.py",
    }
    assert {file: shorten_path(file) for file in short} == short


USERS = "/home/me/train.py"
LIBRARY = f"{SITE}/flax/loop.py"
JAX = f"{SITE}/jax/_src/api.py"
PYTHONS = "/usr/lib/python3.11/runpy.py"
HOOKS = f"{SITE}/mcjax_launch/hook/compilation.py"


def test_innermost_user_line_is_chosen() -> None:
    """Innermost first: the user's own, else a library's, else whatever is not ours."""

    def chosen(*stack: str) -> str | None:
        return user_lines.find_user_frame(stack, lambda file: file)

    assert chosen(HOOKS, JAX, LIBRARY, USERS, PYTHONS) == USERS
    assert chosen(HOOKS, JAX, PYTHONS, LIBRARY) == LIBRARY
    assert chosen(HOOKS, "<frozen runpy>", JAX, PYTHONS) == JAX
    assert chosen(PYTHONS, JAX) == PYTHONS
    assert chosen(HOOKS, "<frozen runpy>") is chosen() is None


def test_callers_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    line = sys._getframe().f_lineno + 1
    assert user_lines.find_current_line() == f"{Path(__file__).name}:{line}"


def test_function_that_a_library_is_entered_by_is_found() -> None:
    lines = "def inner(find): return find()\ndef outer(find): return inner(find)\n"
    library: dict[str, Any] = {}
    exec(compile(lines, "/site/library.py", "exec"), library)
    assert library["outer"](lambda: user_lines.find_library_call("/library.py")) == "outer"
    assert not user_lines.find_library_call("/library.py")
