"""What a stamp depends on, and which files define the shell functions of a command."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcjax_launch.features.setup.agent import command, stamps
from mcjax_launch.features.setup.agent.stamps import Surroundings
from mcjax_launch.machine import own_paths

TOUCHED = "pip install -r lists/base.txt > log.txt"


def look(folder: Path, words: str = TOUCHED, sent: str = "", **environ: str) -> Surroundings:
    environ = {"PATH": os.defpath, "HOME": str(folder), **environ}
    return Surroundings(words, str(folder), environ, {}, sent)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "base.txt").write_text("jax\n")
    (tmp_path / ".venv" / "lib" / "python3.12" / "site-packages" / "jax-0.12.dist-info").mkdir(
        parents=True
    )
    return tmp_path


def remove_package(folder: Path) -> None:
    (folder / ".venv/lib/python3.12/site-packages/jax-0.12.dist-info").rmdir()


def remove_made(folder: Path) -> None:
    (folder / "made").rmdir()


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (lambda folder: None, True),
    "a file that it names": (
        lambda folder: (folder / "lists/base.txt").write_text("flax\n"),
        False,
    ),
    "its output": (lambda folder: (folder / "log.txt").write_text("done\n"), True),
    "a lock": (lambda folder: (folder / "uv.lock").write_text("jax\n"), False),
    "a program": (lambda folder: (folder / "train.py").write_text("pass\n"), True),
    "its packages": (remove_package, False),
    "what it has made": (remove_made, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_stamp_holds_until_what_the_command_depends_on_changes(folder: Path, name: str) -> None:
    change, holds = CHANGES[name]
    around = look(folder)
    (folder / "made").mkdir()
    stamp = around.make_stamp({}, None)
    change(folder)
    assert look(folder).has_not_changed_since(stamp) == holds


def test_stamp_depends_on_variables(folder: Path) -> None:
    stamp = look(folder, "make $TARGET", TARGET="a", OTHER="a").make_stamp({"LIBS": "/new"}, None)

    def holds(**environ: str) -> bool:
        return look(folder, "make $TARGET", **environ).has_not_changed_since(stamp)

    assert holds(TARGET="a", OTHER="b")
    assert not holds(TARGET="b")
    assert not holds(TARGET="a", LIBS="/old")  # of which it has made another value
    assert not holds(TARGET="a", PATH="/bin")


@pytest.mark.parametrize(("lock", "holds"), [(True, True), (False, False)])
def test_stamp_depends_on_sent_files_only_without_a_lock(
    tmp_path: Path, lock: bool, holds: bool
) -> None:
    if lock:
        (tmp_path / "pyproject.toml").write_text("[project]\n")
    stamp = look(tmp_path, "./build.sh", "before").make_stamp({}, None)
    assert look(tmp_path, "./build.sh", "after").has_not_changed_since(stamp) == holds


def test_stamp_is_read_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = own_paths.make_cache_folder("setup", os.environ)
    stamp = look(tmp_path).make_stamp({"NAME": "a\udcff'\n", "GONE": None}, None)
    stamps.write(store, "one", stamp)
    assert stamps.read(store, "one", stamps.compute_oldest()) == stamp
    os.utime(Path(store, "one"), times=(0, 0))
    assert stamps.read(store, "one", stamps.compute_oldest()) is None
    stamps.write(store, "two", stamp)
    assert os.listdir(store) == ["two"]


def test_stamps_are_kept_in_no_folder_that_others_can_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Path(own_paths.make_cache_folder("setup", os.environ)).chmod(0o755)
    with pytest.raises(OSError, match="open to other users"):
        own_paths.make_cache_folder("setup", os.environ)


@pytest.mark.parametrize(
    ("words", "seconds", "changes", "why"),
    [
        ("uv sync", 0.1, {}, ""),
        ("uv sync && . .venv/bin/activate", 20.0, {"PATH": "/new"}, ""),
        ("uv sync && . .venv/bin/activate", 0.1, {"PATH": "/new"}, "it sets variables"),
        (". ./env.sh", 1.5, {"PATH": "/new"}, "it sets variables"),
        (". ./env.sh", 15.0, {"PATH": "/new"}, ""),
        ("conda activate jax", 2.0, {"PATH": "/new"}, "it sets variables"),
        ("conda install -y jax && conda activate x", 2.0, {"PATH": "/new"}, ""),
        ("cd /src && A=1 sudo git pull", 5.0, {}, "what git reads"),
        ("echo git", 5.0, {}, ""),
    ],
)
def test_command_runs_at_each_start_if_a_skip_might_be_wrong(
    tmp_path: Path, words: str, seconds: float, changes: dict[str, str | None], why: str
) -> None:
    around = look(tmp_path, words)
    stamp = around.make_stamp(changes, None)
    found = stamps.find_reason_against(around, seconds, stamp, leaves=False)
    assert found.startswith(why)
    assert bool(found) == bool(why)


# --- shell functions ---


@pytest.fixture
def conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "forge" / "etc" / "profile.d").mkdir(parents=True)
    script = tmp_path / "forge" / "etc" / "profile.d" / "conda.sh"
    script.touch()
    return script


HOOKS = (
    """__conda_setup="$('{home}/forge/bin/conda' 'shell.bash' 'hook' 2> /dev/null)"\n""",
    """__conda_setup="$('{home}/forge/bin/conda' "shell.zsh" "hook")"\n""",
)


@pytest.mark.parametrize("hook", HOOKS)
def test_conda_of_a_start_up_file_is_found(tmp_path: Path, conda: Path, hook: str) -> None:
    environ = {"PATH": "/nowhere"}
    assert command.list_start_files("conda activate jax", environ) == []
    (tmp_path / ".bashrc").write_text(f"# >>> conda initialize >>>\n{hook}".format(home=tmp_path))
    assert command.list_start_files("conda activate jax", environ) == [str(conda)]
    assert command.list_start_files("uv sync", environ) == []


def test_conda_of_a_variable_comes_first(tmp_path: Path, conda: Path) -> None:
    environ = {"PATH": "/nowhere", "CONDA_EXE": str(tmp_path / "forge" / "bin" / "conda")}
    (conda.parent / "mamba.sh").touch()
    found = [str(conda), str(conda.parent / "mamba.sh")]
    assert command.list_start_files("mamba activate jax", environ) == found


def test_module_is_looked_for_only_if_it_is_missing(tmp_path: Path) -> None:
    init = tmp_path / "init" / "sh"
    init.parent.mkdir()
    init.touch()
    environ = {"MODULESHOME": str(tmp_path)}
    assert command.list_start_files("module load cuda", environ) == [str(init)]
    assert command.list_start_files("python -m module", {"BASH_FUNC_module%%": "() {"}) == []


def test_uvs_environment_is_the_ranks_unless_path_has_another(tmp_path: Path) -> None:
    for place in (tmp_path / ".venv" / "bin", tmp_path / "bin"):
        place.mkdir(parents=True)
        (place / "python").touch(mode=0o755)
    before = {"PATH": "/nowhere"}
    after = {"PATH": f"{tmp_path}/bin:/nowhere"}
    folder, own = str(tmp_path), str(tmp_path / ".venv" / "bin" / "python")
    assert command.find_chosen_python("uv sync", folder, before, before) == own
    assert command.find_chosen_python("uv sync", folder, before, after) == f"{tmp_path}/bin/python"
    assert command.find_chosen_python("pip install jax", folder, before, before) == ""
