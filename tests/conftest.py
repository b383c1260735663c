"""Check around each test that nothing is left of its jobs; mark tests by their folder."""

import contextlib
import gc
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixed_environment import remove_users_choices
from jobs import PORTABLE, PROGRAMS, Jobs, described, eventually
from stand_in_jax import make_stand_in

if TYPE_CHECKING:
    from detached import DetachedJobs
    from remote import Lab
    from terminal import Terminal

_HERE = Path(__file__).parent
_KINDS = ("unit", "process", "jax", "lab")
# Marks of tests, the longest first.
_ORDER = ("nightly", "long", "browser", "jax", "lab", "process", "unit")
Launch = Callable[..., Any]
#: What the agents make in the temporary folder.
_FOLDERS = "mcjax-*"

if sys.platform == "darwin":  # has no `setsid`
    os.environ["PATH"] = f"{_HERE / 'macos'}{os.pathsep}{os.environ['PATH']}"

remove_users_choices()
# What nohup ignores, or a script's shell in the background, all that the tests start would as well.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its kind; some in programs/ are what a test runs."""
    for item in items:
        if (kind := _kind_of_file(item.path)) is not None:
            item.add_marker(kind)
        only = item.get_closest_marker("only_linux")
        if only is not None and (PORTABLE or sys.platform != "linux"):
            item.add_marker(pytest.mark.skip(f"only Linux can do that: {only.args[0]}"))
    for item in _first_rows([item for item in items if _kind_of_file(item.path) == "jax"]):
        item.add_marker("afresh")
    if "PYTEST_XDIST_WORKER" in os.environ:  # what is long must not begin when all others end
        items.sort(key=estimate_place)


def estimate_place(item: pytest.Item) -> int:
    """Return a number by which the tests are sorted, the longest first."""
    marks = (at for at, mark in enumerate(_ORDER) if item.get_closest_marker(mark))
    return next(marks, len(_ORDER))


@cache  # of a file's tests, which take a second of each worker otherwise
def _kind_of_file(path: Path) -> str | None:
    return kind_of(path.relative_to(_HERE))


def kind_of(path: Path) -> str | None:
    """The kind of the tests in a file below tests/: its folder's name, or in features/ its own."""
    first, name = path.parts[0], path.stem.split("_")
    kind = name[1] if first == "features" and len(name) > 1 else first
    return kind if kind in _KINDS else None


def _first_rows(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The first of each table; the ranks of the others are forked, as all are by default."""
    seen = set()
    for item in items:
        function = getattr(item, "function", None)
        if hasattr(item, "callspec") and function not in seen:
            seen.add(function)
            yield item


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write why tests were skipped for scripts/test, and which passed for scripts/matrix."""
    if hasattr(terminalreporter.config, "workerinput"):  # xdist's controller has all of them
        return
    if path := os.environ.get("SKIPPED_TESTS"):
        reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(f"{reason.removeprefix('Skipped: ')}\n" for reason in reasons)
    if path := os.environ.get("TEST_COUNTS"):
        run = {"python": platform.python_version(), "jax": version("jax")}
        with open(path, "a", encoding="utf-8") as file:
            print(json.dumps({**run, "tests": outcomes(terminalreporter)}), file=file)


def outcomes(reporter: pytest.TerminalReporter) -> dict[str, dict[str, bool]]:
    """Return the names of the tests by kind, and whether each test and its teardown passed."""
    all_reports = chain.from_iterable(reporter.stats.values())
    reports = [report for report in all_reports if isinstance(report, pytest.TestReport)]
    bad = {report.nodeid for report in reports if not report.passed}
    found: dict[str, dict[str, bool]] = {}
    for name in {report.nodeid for report in reports}:
        kind = kind_of(Path(*Path(name.partition("::")[0]).parts[1:]))
        found.setdefault(str(kind), {})[name] = name not in bad
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Lab]":
    """Hosts in namespaces of their own, each with a real sshd."""
    from remote import Lab

    made = Lab(tmp_path_factory.getbasetemp())
    yield made
    made.end()


@pytest.fixture
def jobs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Jobs]:
    """Starts launchers; afterwards no process and no folder of theirs may be left.

    TEST_PRELOAD=jax has all tests preload that; those marked `forked` do it in any case.
    """
    scratch = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("XDG_STATE_HOME", str(scratch / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(scratch / "cache"))
    forked = request.node.get_closest_marker("forked")
    modules = forked.args[0] if forked and not PORTABLE else os.environ.get("TEST_PRELOAD", "")
    if request.node.get_closest_marker("afresh"):
        modules = "none"
    started = Jobs(modules)
    try:
        yield started
        check_nothing_left(started, scratch)
    finally:
        started.clean_up()


@pytest.fixture
def detached(jobs: Jobs) -> "Iterator[DetachedJobs]":
    """Starts detached jobs; those that a test leaves running are killed after it."""
    from detached import DetachedJobs

    started = DetachedJobs(jobs)
    yield started
    started.kill()


@pytest.fixture
def at_terminal(jobs: Jobs) -> "Iterator[Callable[..., Terminal]]":
    """Starts launchers with these arguments, each in a terminal of its own."""
    from terminal import Terminal

    terminals: list[Terminal] = []

    def start(*args: object, **how: object) -> Terminal:
        terminals.append(Terminal(jobs, *args, **how))  # type: ignore[arg-type]
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def in_this_process(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that use the Python API: what it starts is looked for, as what `jobs` starts."""
    for name in os.environ.keys() - jobs.environment().keys():
        monkeypatch.delenv(name)
    for name, value in jobs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)  # which is that of the test's TMPDIR then


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """The folder of a stand-in for jax."""
    make_stand_in(tmp_path)
    return tmp_path


@pytest.fixture
def called(in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with functions for `run`; the ranks find it as this process does."""
    monkeypatch.syspath_prepend(PROGRAMS)
    import called

    return called


@pytest.fixture
def launch(in_this_process: None) -> Launch:
    """The Python API's `launch`."""
    import mcjax_launch

    return mcjax_launch.launch


def check_nothing_left(started: Jobs, scratch: Path) -> None:
    """Fail if a process or a private folder of these jobs is left."""
    try:
        eventually(lambda: not started.left(), 3)
    except AssertionError:
        pytest.fail(f"left behind:\n{described(started.left())}")
    assert not list(scratch.glob(_FOLDERS)), "private folders left behind"
    keys = [path for path in scratch.glob("state/*/*") if path.name != "jobs"]
    assert not keys, "keys left behind"


@pytest.fixture(autouse=True)
def _no_descriptors_left(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("unit"):  # starts nothing
        yield
        return
    before = _descriptors()
    yield
    deadline = time.monotonic() + 2
    while len(after := _descriptors()) > len(before) + 2:  # pytest's own capture may add
        gc.collect()  # what a traceback held
        more = sorted(after.items() - before.items())
        assert time.monotonic() < deadline, f"descriptors left open: {more}"
        time.sleep(0.01)


def _descriptors() -> dict[int, str]:
    """What each open descriptor leads to."""
    found = {}
    for fd in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # that of the listing itself
            os.fstat(fd)
            found[fd] = _target(fd)
    return found


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/dev/fd/{fd}")
    except OSError:  # macOS has no links there
        return str(os.fstat(fd))
