"""The pytest plugin, by pytest's own `pytester`: real sessions whose tests run in real JAX ranks.

Starting ranks is what takes time here, so that a session checks many things.
"""

import re
import signal
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from jobs import Jobs

pytest_plugins = ["pytester"]
# Ranks are started a dozen times in a session, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(660)

HEAD = """
import os, sys, time
import jax
import pytest
from jax.experimental.multihost_utils import process_allgather

def total():
    return int(process_allgather(jax.process_index()).sum())

RANK = int(os.environ.get("JAX_PROCESS_ID", "-1"))
"""
ROOT = Path(__file__).resolve().parents[3]


class Session:
    """Runs pytest on files as a user does."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def file(self, text: str, name: str = "test_it.py") -> None:
        (self.path / name).write_text(HEAD + text)

    def run(self, *args: str) -> pytest.RunResult:
        plugin = ("-p", "mcjax_launch.pytest_plugin")
        return self.pytester.runpytest_subprocess(*plugin, *args, timeout=600)


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return Session(pytester)


@pytest.mark.every_jax
def test_passing_tests_are_reported(session: Session) -> None:
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
        "@pytest.mark.mcjax(processes=1)\nclass TestInClass:\n"
        "    def test_alone(self):\n        assert jax.process_count() == 1\n"
        "def test_unmarked(of_nothing): pass\n"
        "@pytest.fixture\ndef of_nothing():\n    assert RANK == -1\n",
        "test_other.py",
    )
    result = session.run("-v", "-rsx", "--junitxml=junit.xml")
    result.assert_outcomes(passed=14, skipped=3, xfailed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_parameter[[]2[]] PASSED*",
            "test_it.py::test_skipped SKIPPED (never)*",
            "test_it.py::test_counts[[]1-processes[]] PASSED*",
            "*UserWarning: careful",
            "SKIPPED*could not import 'there_is_no_such_module'*",
            "XFAIL*one of them*",
        ]
    )
    for rank in (0, 1):  # once in a session, of this shape
        assert (session.path / f"ended-{rank}").read_text() == "session ends\n"
    [suite] = ET.parse(session.path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("19", "0", "5")


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

def test_leaves():
    if RANK == 0:
        os._exit(0)
    time.sleep(30)

def test_leaves_last():
    if RANK == 2:
        os._exit(0)

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


# What is told of each.
TOLD = {
    "test_all_fail": [
        "E       assert [1, 3] == [1, 5]",
        "ranks 0-2 failed: assert [1, 3] == [1, 5]",
    ],
    "test_some_fail": [
        "E           assert 1 == 7",
        "rank 1 failed: assert 1 == 7\nrank 2 failed: ValueError: bad batch\n",
    ],
    "test_one_fails_while_others_wait": [
        "E           ValueError: bad batch",
        "rank 1 failed: ValueError: bad batch\nranks 0,2 wait for others in process_allgather at ",
    ],
    "test_exit": ["rank 2 failed: exit status 3", "in test_exit: os._exit(3)"],
    "test_leaves": ["rank 0 exited with 0 in the middle of a session"],
    "test_leaves_last": ["rank 2 exited with 0 in the middle of a session"],
    "test_fault": ["rank 0 failed: killed by SIGSEGV", "in test_fault\n"],
    "test_hang": [
        "the ranks were still running after 1.5 s (timeout of the mark)",
        "in test_hang: time.sleep(100)",
        "rank 0 is in test_hang at test_it.py:",
    ],
    "test_disagree": ["the ranks disagree: rank 0 skipped: not here, the others passed"],
    "test_passes_unexpectedly": ["[XPASS(strict)] must fail"],
    "ERROR at setup of test_setup_fails": ["RuntimeError: no fixture"],
    "ERROR at teardown of test_teardown_fails": ["rank 1 failed: AssertionError: bad end"],
    "test_breakpoint": [
        "E       Failed: no terminal for a debugger here",
        "mcjax-launch -n 3 -d 1 -m pytest test_it.py::test_breakpoint",
    ],
}


def test_each_kind_of_failure_is_reported(session: Session) -> None:
    """Each way to fail is told, and the tests after it go on."""
    session.file(FAILURES)
    result = session.run("--junitxml=junit.xml")
    result.assert_outcomes(passed=2, failed=11, errors=2)
    parts = _parts(result.stdout.str())
    for test, texts in TOLD.items():
        for text in texts:
            assert text in parts[test], f"{test}: {text}"
    assert re.search(r" Captured stdout call, rank (\d) -+\nout of \1\n", parts["test_all_fail"])
    for test, part in parts.items():
        assert "features/pytest" not in part and "During handling" not in part, test
    result.stdout.re_match_lines(
        [r"FAILED test_it.py::test_all_fail - rank \d: assert", "FAILED .*rank 1: assert 1 == 7"]
    )
    tree = ET.parse(session.path / "junit.xml")
    cases = {case.get("name"): case for case in tree.iter("testcase")}
    assert len(cases) == 14
    assert float(cases["test_hang"].get("time", "")) >= 1.5
    failure = cases["test_one_fails_while_others_wait"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.get("message") == "rank 1: ValueError: bad batch"
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


ORDINARY = """
import measured
pytestmark = pytest.mark.mcjax(processes=2)

def test_one():
    assert measured.branch(RANK) == RANK

def test_two():
    assert RANK == 0

def test_three():
    pass

@pytest.mark.timeout(1.5)
def test_limit():
    time.sleep(100)

@pytest.mark.timeout(0.5, func_only=True)
def test_limit_of_function():
    time.sleep(100)
"""
MEASURED = """
def branch(rank):
    if rank == 0:
        return 0
    if rank == 1:
        return 1
    return 2
"""


@pytest.mark.long
def test_pytest_options_keep_their_meaning(session: Session) -> None:
    """-x, --lf, -k, --collect-only, --pdb and pytest-timeout are what they are elsewhere."""
    session.file(ORDINARY)
    (session.path / "measured.py").write_text(MEASURED)
    result = session.run("-k", "not three")
    result.assert_outcomes(passed=1, failed=3, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "the ranks were still running after 1.5 s (pytest-timeout)",
            "*test_it.py:* in test_limit: time.sleep(100)",
            "the ranks were still running after 0.5 s (pytest-timeout)",
        ]
    )
    result = session.run("--lf", "-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*rerun previous 3 failures", "E * assert 1 == 0", "*stopping after 1 failures*"]
    )
    light = "test_no_jax.py"
    (session.path / light).write_text(
        "import pytest\n@pytest.mark.mcjax(processes=2)\ndef test_one(): pass\n"
    )
    result = session.run(light, "--collect-only", "-q")
    result.stdout.fnmatch_lines([f"{light}::test_one", "1 test collected*"])
    result = session.run(light, "--pdb")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --pdb does not reach the ranks*mcjax-launch -n 2 -d 1*"])


@pytest.mark.nightly
def test_coverage_works_under_xdist(session: Session) -> None:
    """Lines that only ranks run count, with workers as well."""
    session.file(ORDINARY)
    (session.path / "measured.py").write_text(MEASURED)
    chosen = ("-k", "test_one or test_three", "--cov=measured", "--cov-report=term-missing")
    for workers in ((), ("-n", "2")):
        result = session.run(*workers, *chosen)
        result.assert_outcomes(passed=2)
        # Only the last line of `branch` is in no rank.
        result.stdout.re_match_lines([r"measured.py +\d+ +1 +\d+% +\d+$"])


def test_shapes_take_turns_in_a_worker(session: Session) -> None:
    """Fixtures of a module end in the ranks of a shape whose next test is in another module."""
    text = """
@pytest.fixture(scope="module")
def of_module(request):
    return request.module.__name__

@pytest.mark.mcjax(processes=[1, 2])
def test_one(of_module):
    assert of_module == __name__
"""
    for name in ("test_first.py", "test_second.py"):
        session.file(text, name)
    session.run("-n", "1").assert_outcomes(passed=4)


COMPILING = """
import numpy

def large(x):
    for step in range(6):
        x = jax.numpy.sin(x @ x.T) + step
    return x.sum()

def compile_it():
    jax.jit(jax.grad(large))(numpy.ones((8, 8), "float32"))

@pytest.mark.mcjax(processes=2)
def test_first():
    compile_it()
    open("compiled", "w").close()

@pytest.mark.mcjax(processes=1)
def test_second():  # in another job, and perhaps for another worker
    while not os.path.exists("compiled"):
        time.sleep(0.1)
    compile_it()

@pytest.mark.mcjax(processes=1, compile_once="off")
def test_for_itself():
    compile_it()
"""


def test_compiled_programs_are_shared(session: Session) -> None:
    """By the jobs and workers of a session, which write one, and by the next session."""
    session.file(COMPILING)
    base = session.path / "base"
    cache = "--mcjax-compile-cache=kept"
    session.run("-n", "2", f"--basetemp={base}", cache).assert_outcomes(passed=3)
    assert (base / "popen-gw0").exists()
    [program] = (session.path / "kept").glob("mcjax-*-cache")
    written = program.stat().st_ino
    session.run("-k", "second", "-o", "mcjax_compile_cache=kept").assert_outcomes(passed=1)
    assert [path.stat().st_ino for path in (session.path / "kept").glob("mcjax-*-cache")] == [
        written
    ]


def test_collection_errors_in_ranks_are_reported(session: Session) -> None:
    session.file(
        "if RANK >= 0:\n    raise ImportError('not in ranks')\n"
        "@pytest.mark.mcjax(processes=2)\ndef test_one(): pass\n"
    )
    session.file(
        "@pytest.mark.mcjax(processes=2)\n@pytest.mark.parametrize('rank', [RANK])\n"
        "def test_two(rank): pass\n"
        "@pytest.mark.mcjax(processes=2)\ndef test_three(): assert total() == 1\n",
        "test_other.py",
    )
    result = session.run()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "rank 0 did not collect this test: *",
            "E   ImportError: not in ranks",
            "rank 0 did not collect this test: names and parameters of tests must be *",
        ]
    )


def test_start_errors_of_ranks_are_reported(session: Session) -> None:
    (session.path / "jax.py").write_text("raise ImportError('no such jax')\n")
    (session.path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.mcjax(processes=2)\ndef test_one(): pass\n"
    )
    result = session.run("-o", "mcjax_preload=")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the ranks could not be started: *", "*no such jax*"])


@pytest.mark.parametrize(("signum", "portable"), [(signal.SIGINT, "0"), (signal.SIGKILL, "1")])
def test_ended_session_leaves_nothing(
    jobs: Jobs, tmp_path: Path, signum: signal.Signals, portable: str
) -> None:
    text = (
        "@pytest.mark.mcjax(processes=2)\ndef test_one():\n"
        "    print('ready', flush=True)\n    time.sleep(100)\n"
    )
    (tmp_path / "test_it.py").write_text(HEAD + text)
    pytest_here = [sys.executable, "-m", "pytest", "-p", "mcjax_launch.pytest_plugin"]
    env = {"PYTHONPATH": str(ROOT), "MCJAX_PORTABLE": portable}
    running = jobs.start("-s", launcher=pytest_here, cwd=tmp_path, env=env)
    running.read_until("ready", 2)
    running.signal(signum)
    ended = running.finish()
    assert ended.status in (pytest.ExitCode.INTERRUPTED, -signal.SIGKILL)


@pytest.mark.parametrize(
    ("signum", "portable"),
    [(signal.SIGTERM, "0"), (signal.SIGKILL, "0"), (signal.SIGKILL, "1")],
)
def test_session_ended_while_ranks_start_leaves_nothing(
    jobs: Jobs, tmp_path: Path, signum: int, portable: str
) -> None:
    text = "import pytest\n@pytest.mark.mcjax(processes=2)\ndef test_one(): pass\n"
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "if 'JAX_PROCESS_ID' in os.environ: print('begins', flush=True); time.sleep(100)"
    )
    pytest_here = [sys.executable, "-m", "pytest", "-p", "mcjax_launch.pytest_plugin"]
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "MCJAX_PORTABLE": portable}
    options = ["-s", "-o", "mcjax_preload="]
    running = jobs.start(*options, launcher=pytest_here, cwd=tmp_path, env=env)
    running.read_until("begins", 2)
    running.signal(signum)
    assert running.finish().status == -signum


def test_pytest_runs_inside_ranks(jobs: Jobs, tmp_path: Path) -> None:
    """Where pytest itself runs in the ranks, which is what a debugger needs."""
    text = """
@pytest.mark.mcjax(processes=2)
def test_here(tmp_path):
    (tmp_path / str(RANK)).write_text("")
    assert total() == 1
    assert len(list(tmp_path.iterdir())) == 2

@pytest.mark.mcjax(processes=3)
def test_elsewhere():
    pass
"""
    (tmp_path / "test_it.py").write_text(HEAD + text)
    words = ["-m", "pytest", "-rs", "-p", "mcjax_launch.pytest_plugin", "-p", "no:cacheprovider"]
    env = {"PYTHONPATH": str(ROOT)}
    ended = jobs.run("-n", 2, "-d", 1, *words, cwd=tmp_path, env=env)
    assert ended.status == 0, ended.stdout
    assert ended.stdout.count("1 passed, 1 skipped") == 2
    assert "for mcjax-launch -n 3 -d 1: this job has -n 2" in ended.stdout


def test_invalid_mark_is_an_error_of_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="import pytest\n@pytest.mark.mcjax\ndef test_one(): pass\ndef test_two(): pass\n"
    )
    result = pytester.runpytest_inprocess("-p", "mcjax_launch.pytest_plugin")
    result.assert_outcomes(errors=1, passed=1)
    assert "mcjax(): how many? write mcjax(processes=2)" in result.outlines
    assert "Traceback" not in result.stdout.str()
    assert result.stderr.str() == ""
