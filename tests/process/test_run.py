"""`mcjax_launch.run`: a function in N ranks, without JAX."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS
from remote import FAKE_SSH

import mcjax_launch
from mcjax_launch import JobFailed, LaunchError


@pytest.fixture(autouse=True)
def called(in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with the functions; the ranks find it as this process does."""
    monkeypatch.syspath_prepend(PROGRAMS)
    import called

    return called


def run(function: Any, *args: object, **keywords: Any) -> list[Any]:
    keywords = {"processes": 2, "initialize": False, "echo": False, **keywords}
    return mcjax_launch.run(function, args=args, **keywords)


def test_values_come_in_rank_order(called: Any) -> None:
    assert run(called.times, 3, processes=3, kwargs={"plus": 1}) == [1, 4, 7]


def test_what_it_prints_is_shown(called: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mcjax_launch.run(called.times, processes=1, args=(1,), initialize=False)
    assert capsys.readouterr() == ("", "[0] called\n")
    run(called.times, 1)
    assert capsys.readouterr() == ("", "")


def test_a_large_value(called: Any) -> None:
    size = 5_000_000  # several messages
    assert run(called.big, size) == [bytes(size), b"\1" * size]


def test_what_it_raises_is_raised_again(called: Any) -> None:
    with pytest.raises(KeyError, match="no such thing") as raised:
        run(called.fails, "KeyError")
    assert raised.value.__notes__ == ["raised by fails in rank 1 of 2"]
    text = str(raised.value.__cause__)
    assert f'File "{PROGRAMS}/called.py", line' in text
    assert 'raise KeyError("no such thing")' in text
    assert "runpy" not in text and "mcjax_hook" not in text


def test_a_traceback_begins_below_our_own_code(
    called: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyError):
        run(called.fails, "KeyError", echo=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[1] ")]
    assert lines[0] == "[1] Traceback (most recent call last):"
    assert lines[1].startswith(f'[1]   File "{PROGRAMS}/called.py", line ')
    assert lines[-1] == "[1] KeyError: 'no such thing'"


@pytest.mark.parametrize(
    ("how", "message"),
    [("Own", "rank 1 failed: called.Own: a message"), ("kill", "rank 1 failed: killed by SIGKILL")],
)
def test_what_cannot_be_raised_again(called: Any, how: str, message: str) -> None:
    with pytest.raises(JobFailed, match=message) as raised:
        run(called.fails, how)
    assert raised.value.result.root_cause is not None
    assert raised.value.result.root_cause.rank == 1


def test_a_rank_that_does_not_return(called: Any) -> None:
    with pytest.raises(LaunchError, match="run: leaves has not returned in ranks 0-1"):
        run(called.leaves)


def test_a_value_that_cannot_be_pickled(called: Any) -> None:
    with pytest.raises(TypeError, match="what unpicklable returned cannot be pickled: cannot"):
        run(called.unpicklable)


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match=r"'toy\.py' is not callable; launch runs a program"):
        run("toy.py")  # type: ignore[arg-type]


def test_what_is_of_programs(called: Any) -> None:
    with pytest.raises(TypeError, match="'no_hook' is for programs; use launch"):
        run(called.times, 1, no_hook=True)


def test_on_other_hosts(called: Any, tmp_path: Path) -> None:
    """The call is copied there, beside what the function needs."""
    (tmp_path / "data").write_text("7")
    found = run(called.reads, "data", hosts=["a", "b"], via=FAKE_SSH, sync=tmp_path / "data")
    assert found == ["7", "7"]


def test_asyncio(called: Any) -> None:
    async def main() -> list[int]:
        return await mcjax_launch.run_async(
            called.times, processes=2, args=(2,), initialize=False, echo=False
        )

    assert asyncio.run(main()) == [0, 2]


def test_a_program_that_calls_it(called: Any) -> None:
    """The file of the call is gone whatever comes of it."""
    assert run(called.times, 1) == [0, 1]
    with pytest.raises(KeyError):
        run(called.fails, "KeyError")
    assert not list(Path(tempfile.gettempdir()).glob("mcjax-*"))


MAIN = """
import mcjax_launch
factor = 3
class Pair:
    def __init__(self, one): self.one = one
def mine(plus):
    import os
    return Pair(int(os.environ["JAX_PROCESS_ID"]) * factor + plus)
print([pair.one for pair in mcjax_launch.run(mine, processes=2, args=(1,), initialize=False)])
"""


def of_main(*, without: str = "") -> "subprocess.CompletedProcess[str]":
    hide = f"import sys; sys.modules[{without!r}] = None\n" if without else ""
    command = [sys.executable, "-c", hide + MAIN]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_function_of_the_main_program() -> None:
    pytest.importorskip("cloudpickle")
    done = of_main()
    assert (done.stdout, done.stderr) == ("[1, 4]\n", "")


def test_without_cloudpickle_a_function_of_the_main_program_is_refused() -> None:
    done = of_main(without="cloudpickle")
    assert done.stderr.splitlines()[-1] == (
        "mcjax_launch.LaunchError: run: mine needs what only __main__ defines, which the "
        "ranks cannot import: pip install cloudpickle, or move it to a module"
    )
