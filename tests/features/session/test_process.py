"""`mcjax_launch.run`: a function in N ranks, without JAX."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS
from remote import FAKE_SSH

import mcjax_launch
from mcjax_launch import JobFailed, LaunchError

pytestmark = pytest.mark.usefixtures("called")


def run(function: Any, *args: object, **keywords: Any) -> list[Any]:
    keywords = {"processes": 2, "initialize": False, "echo": False, **keywords}
    return mcjax_launch.run(function, args=args, **keywords)


def test_values_come_in_rank_order(called: Any) -> None:
    assert run(called.times, 3, processes=3, kwargs={"plus": 1}) == [1, 4, 7]


def test_output_of_a_called_function_is_shown(
    called: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    mcjax_launch.run(called.times, processes=1, args=(1,), initialize=False)
    assert capsys.readouterr() == ("", "[0] called\n")
    run(called.times, 1)
    assert capsys.readouterr() == ("", "")


def test_exception_of_a_called_function_is_raised_again(called: Any) -> None:
    with pytest.raises(KeyError, match="no such thing") as raised:
        run(called.fails, "KeyError")
    assert raised.value.__notes__ == ["raised by fails in rank 1 of 2"]
    text = str(raised.value.__cause__)
    assert f'File "{PROGRAMS}/called.py", line' in text
    assert 'raise KeyError("no such thing")' in text
    assert "runpy" not in text and "mcjax_launch/hook" not in text


def test_traceback_begins_below_our_code(called: Any, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_exception_that_cannot_be_raised_again_fails_the_job(
    called: Any, how: str, message: str
) -> None:
    with pytest.raises(JobFailed, match=message) as raised:
        run(called.fails, how)
    assert raised.value.result.root_cause is not None
    assert raised.value.result.root_cause.rank == 1


def test_function_that_does_not_return_is_an_error(called: Any) -> None:
    with pytest.raises(LaunchError, match="run: leaves returned no value in ranks 0-1"):
        run(called.leaves)


def test_run_refuses_options_of_programs(called: Any) -> None:
    with pytest.raises(TypeError, match="'no_hook' is for programs; use launch"):
        run(called.times, 1, no_hook=True)


def test_function_is_called_on_other_hosts(called: Any, tmp_path: Path) -> None:
    """The call is copied there, beside what the function needs."""
    (tmp_path / "data").write_text("7")
    found = run(called.reads, "data", hosts=["a", "b"], via=FAKE_SSH, sync=tmp_path / "data")
    assert found == ["7", "7"]


def test_each_rank_has_its_own_copy_of_arguments(called: Any) -> None:
    data = bytearray(1 << 20)
    found = run(called.changed, pickle.PickleBuffer(data), processes=3)
    assert found == [b"\1" + bytes((1 << 20) - 1)] * 3
    assert data == bytes(1 << 20)


def test_values_come_from_other_hosts(called: Any) -> None:
    size = 5_000_000
    found = run(called.beside, size, hosts=["a", "b"], via=FAKE_SSH)
    assert found == [bytes(size), b"\1" * size]
    found[0][0] = 7  # it is the caller's own


@pytest.mark.parametrize("preload", [None, "json"])
def test_values_come_from_the_last_attempt(called: Any, preload: str | None) -> None:
    assert run(called.fails_once, 5, max_restarts=1, preload=preload) == [bytes(5), b"\1" * 5]


def test_value_without_room_is_an_error(called: Any) -> None:
    why = "no room for what the function returned: File too large in .* set TMPDIR to another"
    with pytest.raises(OSError, match=why):
        run(called.has_no_room, 1 << 20)


# --- the main program ---

MAIN = """
import os
import mcjax_launch
factor = 3
class Pair:
    def __init__(self, number): self.number = number
def mine(pair):
    assert type(pair) is Pair
    return Pair(int(os.environ["JAX_PROCESS_ID"]) * factor + pair.number)
def main(**keywords):
    keywords = {"processes": 2, "args": (Pair(1),), "initialize": False, **keywords}
    found = mcjax_launch.run(mine, **keywords)
    print([pair.number for pair in found], {type(pair) is Pair for pair in found})
"""
GUARD = 'if __name__ == "__main__":'
NO_CLOUDPICKLE = "import sys; sys.modules['cloudpickle'] = None\n"


def python(*args: object, **how: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, **how)


def script(folder: Path, *lines: str) -> Path:
    """A package of which one module runs functions, and has a neighbour."""
    (folder / "pack").mkdir()
    (folder / "pack" / "neighbour.py").touch()
    path = folder / "pack" / "script.py"
    path.write_text("\n".join((NO_CLOUDPICKLE, MAIN, *lines)))
    return path


def test_function_of_the_main_file_is_called(tmp_path: Path) -> None:
    path = script(
        tmp_path, "import neighbour, sys", "assert sys.argv[1:] == ['a']", GUARD, " main()"
    )
    done = python(path, "a")
    assert (done.stdout, done.stderr) == ("[1, 4] {True}\n", "")


def test_function_of_a_module_run_as_main_is_called(tmp_path: Path) -> None:
    script(tmp_path, "from . import neighbour", GUARD, " main()")
    done = python("-m", "pack.script", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[1, 4] {True}\n", "")


def test_main_file_is_sent_to_hosts_that_lack_it(tmp_path: Path) -> None:
    """Its text comes along, for tracebacks too."""
    path = script(
        tmp_path,
        "import linecache",
        "def mine(pair): return Pair(len(linecache.getline(__file__, 1)))",
        "def forget(event):",
        "    if event.kind == 'note' and os.path.exists(__file__): os.unlink(__file__)",
        GUARD,
        f" main(hosts=['a', 'b'], via={FAKE_SSH!r}, verbose=True, on_event=forget, echo=False)",
    )
    done = python(path)
    first = len(NO_CLOUDPICKLE)
    assert (done.stdout, done.stderr) == (f"[{first}, {first}] {{True}}\n", "")
    assert not path.exists()


def test_exception_class_of_the_main_file_is_raised_again(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "class Own(Exception): pass",
        "def mine(pair): raise Own('a message')",
        GUARD,
        " try: main(echo=False)",
        " except Own as error: print(error, error.__cause__)",
    )
    done = python(path)
    assert done.stdout.startswith("a message") and done.stderr == ""
    assert f'File "{path}", line 18, in mine' in done.stdout
    assert "mcjax" not in done.stdout.replace(str(path), "")


def test_unguarded_call_in_the_main_file_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "main()")
    why = f"{path} starts a job, also when the ranks import it: put that under `{GUARD}`\n"
    assert f"mcjax_launch.LaunchError: {why}" in python(path).stderr
    pytest.importorskip("cloudpickle")
    path.write_text(path.read_text().removeprefix(NO_CLOUDPICKLE))
    done = python(path)
    assert (done.stdout, done.stderr) == ("[1, 4] {True}\n", "")


def test_job_started_on_import_by_ranks_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, GUARD, " main(echo=False)", "else:", " mcjax_launch.launch('true')")
    done = python(path)
    assert (
        f"mcjax_launch.LaunchError: {path} starts a job, also when the ranks import it: "
        f"put that under `{GUARD}`\n" in done.stderr
    )


def test_function_defined_only_under_the_guard_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, GUARD, " def mine(pair): return pair", " mine.__qualname__ = 'other'")
    path.write_text(path.read_text() + "\n other = mine\n main(echo=False)\n")
    assert f"the ranks import it without the code under `{GUARD}`" in python(path).stderr


def test_function_without_a_file_is_called() -> None:
    pytest.importorskip("cloudpickle")
    done = python("-c", f"{MAIN}\nmain()")
    assert (done.stdout, done.stderr) == ("[1, 4] {True}\n", "")


def test_function_without_a_file_needs_cloudpickle() -> None:
    done = python("-c", f"{NO_CLOUDPICKLE}{MAIN}\nmain()")
    assert done.stderr.splitlines()[-1] == (
        "mcjax_launch.LaunchError: run: mine needs names that only __main__ defines, which "
        "the ranks cannot import: pip install cloudpickle, or move it to a module"
    )


def test_lambda_needs_cloudpickle(tmp_path: Path) -> None:
    path = script(tmp_path, GUARD, " mcjax_launch.run(lambda: 1)")
    last = python(path).stderr.splitlines()[-1]
    assert last.startswith("mcjax_launch.LaunchError: run: <lambda> cannot be pickled: ")
    assert last.endswith("; cloudpickle can pickle more: pip install cloudpickle")


# --- what it takes, and leaves ---


@contextlib.contextmanager
def traced(most: int) -> Iterator[None]:
    """Allow this process no more memory than this, beside what it has."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_large_value_is_kept_in_memory_once(called: Any) -> None:
    size = 50 << 20
    with traced(int(size * 1.2)):
        [value] = run(called.beside, size, processes=1)
        assert len(value) == size


def test_arguments_are_not_copied(called: Any) -> None:
    size = 50 << 20
    data = pickle.PickleBuffer(bytearray(size))
    with traced(size // 5):
        assert run(len, data, processes=1) == [size]


@pytest.mark.parametrize("where", [{}, {"hosts": ["a"], "via": FAKE_SSH}], ids=["here", "there"])
def test_killed_caller_leaves_nothing(called: Any, where: dict[str, object]) -> None:
    """While a value is on its way; what is left is looked for after each test."""
    code = f"""
import called, mcjax_launch, time
def wait(line):
    print(line.text, flush=True)
    time.sleep(1000)  # in the job's thread, so that nothing is taken
mcjax_launch.run(called.beside, args=({20 << 20}, "ready"), processes=1, initialize=False,
    echo=False, on_line=wait, **{where!r})
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=PROGRAMS, stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"ready\n"
        caller.kill()


def test_interrupt_ends_the_transfer_of_a_value(called: Any) -> None:
    def interrupt(event: mcjax_launch.Event) -> None:
        if event.kind == "ended":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(called.beside, 50 << 20, processes=1, on_event=interrupt)
