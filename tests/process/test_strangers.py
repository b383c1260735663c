"""Files of a stranger in the current folder, named as Python's own modules, are not run."""

import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("re", "queue", "runpy", "types", "contextlib", "pickle", "warnings", "importlib", "site")
CALLS = """
import sys
import mcjax_launch

def find():
    import re
    return sys.path[0], re.__file__

if __name__ == "__main__":
    how = {"processes": 1, "initialize": False}
    with mcjax_launch.session(**how) as ranks:
        found = [*mcjax_launch.run(find, **how), *ranks.run(find)]
    import re
    assert found == [(sys.path[0], re.__file__)] * 2, found
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which a stranger has left modules that tell when they are run."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})")
    return folder


def test_calls_in_ranks_run_no_strangers_code(shared: Path, tmp_path: Path) -> None:
    """The caller is a script elsewhere, whose own sys.path lacks the current folder."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "calls.py").write_text(CALLS)
    (own / "queue.py").write_text("")  # the user's own, which nothing here imports
    command = [sys.executable, str(own / "calls.py")]
    done = subprocess.run(command, cwd=shared, capture_output=True, text=True, timeout=150)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()
