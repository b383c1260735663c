"""The pytest plugin, by pytest's own `pytester`: real sessions whose tests run in real JAX ranks.

Starting ranks is what takes time here, so that a session checks many things.
"""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HEAD = """
import os, sys, time
import jax
import pytest
from jax.experimental.multihost_utils import process_allgather

def total():
    return int(process_allgather(jax.process_index()).sum())

RANK = int(os.environ.get("JAX_PROCESS_ID", "-1"))
"""
ROOT = Path(__file__).resolve().parents[2]


class Session:
    """Runs pytest on files as a user does."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def file(self, text: str, name: str = "test_it.py") -> None:
        (self.path / name).write_text(HEAD + text)

    def run(self, *args: str) -> pytest.RunResult:
        plugin = ("-p", "mcjax_launch.pytest_plugin")
        return self.pytester.runpytest_subprocess(*plugin, *args, timeout=100)


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return Session(pytester)


def test_what_passes(session: Session) -> None:
    """Fixtures of all scopes, marks of all kinds, and what a test is given."""
    (session.path / "conftest.py").write_text("""
import jax, os, pytest
@pytest.fixture(scope="session")
def of_session():
    print("session begins")
    yield jax.process_index()
    with open(f"ended-{os.environ['JAX_PROCESS_ID']}", "a") as file:
        file.write("session ends\\n")
@pytest.fixture(scope="module")
def of_module(of_session):
    return [of_session]
@pytest.fixture(scope="class")
def of_class(of_module):
    return list(of_module)
""")
    session.file("""
pytestmark = pytest.mark.mcjax(processes=2, cpu_devices=2)

def test_initialized(of_session):
    assert jax.process_count() == 2 and jax.device_count() == 4
    assert of_session == jax.process_index() == RANK
    assert total() == 1

def test_module_scope(of_module):
    assert of_module == [RANK]
    of_module.append("seen")

class TestInClass:
    def test_one(self, of_module, of_class):
        assert of_module == of_class == [RANK, "seen"]
        of_class.append("one")
    def test_two(self, of_class):
        assert of_class == [RANK, "seen", "one"]

@pytest.mark.parametrize("factor", [2, 3])
def test_parameter(factor):
    assert factor * total() == factor

def test_tmp_path(tmp_path, tmp_path_factory):
    (tmp_path / f"of-{RANK}").write_text("x")
    total()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of-0", "of-1"]
    assert len(list(tmp_path_factory.getbasetemp().iterdir())) == 1

def test_capsys_and_monkeypatch(capsys, monkeypatch):
    monkeypatch.setenv("OURS", "1")
    print(os.environ["OURS"])
    assert capsys.readouterr().out == "1\\n"

def test_importorskip():
    pytest.importorskip("there_is_no_such_module")

@pytest.mark.skip(reason="never")
def test_skipped():
    pass

@pytest.mark.skipif("jax.process_count() == 2", reason="two")
def test_skipped_in_ranks():
    pass

@pytest.mark.xfail(reason="known")
def test_xfail():
    assert total() == 5

@pytest.mark.xfail(reason="one of them", strict=True)
def test_xfail_in_one_rank():
    assert RANK == 0

@pytest.mark.mcjax(processes=[1, 2], cpu_devices=1)
def test_counts():
    assert jax.process_count() == jax.device_count()

def test_warns():
    import warnings
    warnings.warn("careful")
""")
    session.file(
        "@pytest.mark.mcjax(processes=2, cpu_devices=2)\n"
        "def test_other(of_session, of_module):\n    assert of_module == [of_session]\n"
        "def test_unmarked(of_nothing): pass\n"
        "@pytest.fixture\ndef of_nothing():\n    assert RANK == -1\n",
        "test_other.py",
    )
    result = session.run("-v", "-rsx", "--junitxml=junit.xml")
    result.assert_outcomes(passed=13, skipped=3, xfailed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_parameter[[]2[]] PASSED*",
            "test_it.py::test_skipped SKIPPED (never)*",
            "test_it.py::test_counts[[]1-processes[]] PASSED*",
            "*UserWarning: careful",
            "SKIPPED*could not import 'there_is_no_such_module'*",
            "XFAIL*one of them (*rank 0 passed*",
        ]
    )
    for rank in (0, 1):  # once in a session, of this shape
        assert (session.path / f"ended-{rank}").read_text() == "session ends\n"
    [suite] = ET.parse(session.path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("18", "0", "5")


FAILURES = """
pytestmark = pytest.mark.mcjax(processes=3)

def test_all_fail(record_property):
    print("out of", RANK)
    record_property("kind", "alike")
    assert [1, total()] == [1, 5]

def test_some_fail():
    if RANK == 2:
        time.sleep(0.2)
        raise ValueError("bad batch")
    if RANK == 1:
        assert RANK == 7

def test_one_fails_while_others_wait():
    if RANK == 1:
        raise ValueError("bad batch")
    total()

def test_exit():
    print("last words")
    if RANK == 2:
        os._exit(3)
    total()

def test_fault():
    if RANK == 0:
        import ctypes
        ctypes.string_at(0)
    total()

@pytest.mark.mcjax(timeout=1.5)
def test_hang():
    jax.devices()
    if RANK == 0:
        time.sleep(100)
    total()

def test_disagree():
    if RANK == 0:
        pytest.skip("not here")

@pytest.mark.xfail(strict=True, reason="must fail")
def test_passes_unexpectedly():
    pass

@pytest.fixture
def bad():
    raise RuntimeError("no fixture")

def test_setup_fails(bad):
    pass

@pytest.fixture
def bad_end():
    yield
    assert RANK != 1, "bad end"

def test_teardown_fails(bad_end):
    pass

def test_breakpoint():
    breakpoint()

def test_still_works():
    assert total() == 3
"""


def test_what_fails(session: Session) -> None:
    """Each way to fail is told, and the tests after it go on."""
    session.file(FAILURES)
    result = session.run("--junitxml=junit.xml")
    result.assert_outcomes(passed=2, failed=9, errors=2)
    text = result.stdout.str()
    parts = _parts(text)

    assert "E       assert [1, 3] == [1, 5]" in parts["test_all_fail"]
    assert "all 3 ranks failed alike" in parts["test_all_fail"]
    for rank in range(3):
        name = f" Captured stdout call, rank {rank} "
        assert parts["test_all_fail"].partition(name)[2].splitlines()[1] == f"out of {rank}"

    some = parts["test_some_fail"]
    assert "E           assert 1 == 7" in some and "E           ValueError" not in some
    assert "rank 1 failed: see above" in some and "rank 0 passed" in some
    assert "rank 2 failed: ValueError: bad batch (" in some

    one = parts["test_one_fails_while_others_wait"]
    assert "E           ValueError: bad batch" in one
    assert "rank 1 failed: see above\nranks 0,2 were still running 1." in one
    stacks = one.partition(" stacks, ")[2]
    assert "ranks 0,2:" in stacks and "in total: return int(process_allgather" in stacks
    assert "_pytest" not in stacks and "pytest_plugin" not in stacks

    assert "E   rank 2 crashed: exit status 3" in parts["test_exit"]
    assert "Captured stdout call, rank 2 -" in parts["test_exit"]
    assert "last words\n" in parts["test_exit"]
    assert "E   rank 0 crashed: killed by SIGSEGV" in parts["test_fault"]
    assert "in test_fault" in parts["test_fault"].partition("last words of rank 0")[2]

    hang = parts["test_hang"]
    assert "E   ranks 0-2 were still running after 1.5 s (timeout=1.5 of the mark)" in hang
    assert "in test_hang: time.sleep(100)" in hang and "which rank 0 has not reached" in hang

    disagree = parts["test_disagree"]
    assert "E   the ranks disagree: rank 0 skipped, ranks 1-2 passed" in disagree
    assert "rank 0 skipped: not here (" in disagree

    assert "[XPASS(strict)] must fail" in parts["test_passes_unexpectedly"]
    assert "RuntimeError: no fixture" in parts["ERROR at setup of test_setup_fails"]
    assert "rank 1 failed: see above" in parts["ERROR at teardown of test_teardown_fails"]
    assert "breakpoint() needs a terminal" in parts["test_breakpoint"]
    assert "-m pytest -k TEST" in parts["test_breakpoint"]

    result.stdout.fnmatch_lines(
        ["FAILED test_it.py::test_all_fail - ranks 0-2: assert*", "FAILED *rank 1: assert 1 == 7"]
    )
    cases = {
        case.get("name"): case for case in ET.parse(session.path / "junit.xml").iter("testcase")
    }
    assert len(cases) == 12
    failure = cases["test_one_fails_while_others_wait"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.get("message") == "rank 1: ValueError: bad batch"
    assert "ranks 0,2 were still running" in failure.text
    [kind] = cases["test_all_fail"].iter("property")
    assert (kind.get("name"), kind.get("value")) == ("kind", "alike")


def _parts(text: str) -> dict[str, str]:
    """The account of each failed test, by its headline."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("____") and line.endswith("____"):
            name = line.strip("_ ")
        found.setdefault(name, []).append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}
