"""Files that define the shell functions of a command, and the Python that it chooses."""

from pathlib import Path

import pytest

from mcjax_launch.features.setup.agent import command
from mcjax_launch.machine.interpreter import Unusable


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


def test_uvs_environment_that_others_can_change_is_not_chosen(tmp_path: Path) -> None:
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    own.parent.chmod(0o777)
    with pytest.raises(Unusable, match=r"\.venv/bin/python: every user can write to it"):
        command.find_chosen_python("uv sync", str(tmp_path), {}, {})
