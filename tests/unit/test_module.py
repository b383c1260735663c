"""PROGRAM as a module, looked for before anything is started."""

import os
import sys
from pathlib import Path

import pytest

from mcjax_launch.machine.interpreter import Unusable, check_python_file, find_command
from mcjax_launch.request.program import check_module

FILES = ("pkg/__init__.py", "pkg/train.py", "pkg/sub/__init__.py", "pkg/sub/__main__.py")
FOUND = ["pkg.train", "pkg.sub", "space.tool", "json.tool", "jax.tools.jax_to_ir", "odd.made"]
NOT_FOUND = {
    "nomod": "no such module in {cwd} or of {python}",
    "pkgg": "no such module in {cwd} or of {python}; did you mean -m pkg?",
    "pkg.trian": "no such module in {cwd}/pkg; did you mean -m pkg.train?",
    "pkg.train.x": "pkg.train is a module, not a package",
    "pkg": "is a package without a __main__.py; name a module in it",
    "json.nothing": "no such module in {json}",
}


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    for name in (*FILES, "space/tool.py", "jax/data"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('imported')")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "__init__.py").write_text("import sys; sys.modules['odd.made'] = sys")
    return tmp_path


@pytest.mark.parametrize("name", FOUND)
def test_existing_module_is_accepted(name: str, cwd: Path) -> None:
    check_module(name, sys.executable, str(cwd), os.environ)


@pytest.mark.parametrize("name", NOT_FOUND)
def test_missing_module_is_refused(name: str, cwd: Path) -> None:
    import json

    with pytest.raises(Unusable) as raised:
        check_module(name, sys.executable, str(cwd), os.environ)
    places = {"cwd": cwd, "python": sys.executable, "json": Path(json.__file__).parent}
    assert str(raised.value) == f"-m {name}: {NOT_FOUND[name].format(**places)}"


def test_module_in_pythonpath_is_found_without_a_working_python(cwd: Path) -> None:
    check_module("pkg.train", "/nothing", "/", {"PYTHONPATH": f"::{cwd}"})
    check_module("unknown", "/nothing", "/", {})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pkg", "; did you mean pkg/train.py?"),
        ("pkg/sub", "; write -m pkg.sub"),
        ("space/", "; did you mean space/tool.py?"),
        ("jax", "; name a program in it"),
    ],
)
def test_folder_as_program_is_refused(name: str, hint: str, cwd: Path) -> None:
    with pytest.raises(Unusable, match="directory") as raised:
        find_command(name, str(cwd), "")
    assert str(raised.value) == f"{name}: is a directory{hint}"


def test_missing_extension_gets_a_suggestion(cwd: Path) -> None:
    (cwd / "toy.py").touch()
    for name in ("toy", "./toy"):
        with pytest.raises(Unusable, match=r"; did you mean (\./)?toy\.py\?$"):
            find_command(name, str(cwd), "")
    (cwd / "x.py").mkdir()
    with pytest.raises(Unusable, match=r"x\.py: is a directory; name a program in it$"):
        check_python_file("x.py", str(cwd))
