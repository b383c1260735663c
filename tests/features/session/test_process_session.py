"""`mcjax_launch.session`: ranks that stay and make calls, without JAX."""

import contextlib
import gc
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from jobs import LIMIT_S, PROGRAMS, Jobs, eventually
from remote import FAKE_SSH

import mcjax_launch
from mcjax_launch import CallFailed, JobFailed, LaunchError
from mcjax_launch.console.collapse import MOMENT_S
from mcjax_launch.features.session.client import progress as call_progress

pytestmark = pytest.mark.usefixtures("called")


def session(**keywords: Any) -> mcjax_launch.Session:
    keywords = {"processes": 3, "initialize": False, "echo": False, **keywords}
    return mcjax_launch.session(**keywords)


@pytest.fixture(scope="module")
def shared() -> Iterator[mcjax_launch.Session]:
    """Ranks for tests that leave them as they are."""
    with session() as ranks:
        yield ranks


# --- calls ---


def test_calls_return_values_in_rank_order(shared: mcjax_launch.Session, called: Any) -> None:
    assert shared.run(called.times, (3,), {"plus": 1}) == [1, 4, 7]
    assert shared.run(called.times, (3,)) == [0, 3, 6]
    assert shared.processes == 3


def test_line_that_a_call_leaves_open_ends_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    with session(processes=1, echo=True) as ranks:
        for number in range(2):
            ranks.exec("print('open', end='', flush=True)")
            print(f"after call {number}", flush=True)
    told = capfd.readouterr().out
    assert told == "[0] open\nafter call 0\n[0] open\nafter call 1\n"


@pytest.mark.parametrize(
    ("ranks", "found"), [(None, [0, 1, 2]), (1, [1]), ([2, 0], [0, 2]), ("0,1-2", [0, 1, 2])]
)
def test_some_ranks_make_a_call(
    shared: mcjax_launch.Session, called: Any, ranks: Any, found: list[int]
) -> None:
    assert shared.run(called.rank, ranks=ranks) == found


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (3, "ranks: 3 is not among ranks 0-2"),
        ((), r"ranks: \(\) names no rank"),
        ("0-", "ranks: '0-' is not a set of ranks: write 0 or 0,4-7"),
    ],
)
def test_unknown_ranks_are_refused(
    shared: mcjax_launch.Session, called: Any, ranks: Any, message: str
) -> None:
    with pytest.raises(LaunchError, match=f"^{message}$"):
        shared.run(called.rank, ranks=ranks)


def test_what_a_text_defines_stays(shared: mcjax_launch.Session) -> None:
    assert shared.exec("import os\nnumber = int(os.environ['JAX_PROCESS_ID'])") == [None] * 3
    text = """
        number += 1
        def double(): return 2 * number
        double()
    """
    assert shared.exec(text) == [2, 4, 6]
    assert shared.exec("double()", ranks=1) == [4]
    assert shared.exec("__name__, __builtins__.__name__") == [("__main__", "builtins")] * 3


def test_value_that_stays_in_its_rank_comes_as_text(shared: mcjax_launch.Session) -> None:
    shared.exec("class Own:\n    def __repr__(self): return 'an own'")
    for text in ("Own()", "[Own()]", "threading.Lock()"):
        [value] = shared.exec(f"import threading\n{text}", ranks=0)
        assert isinstance(value, mcjax_launch.Repr)
        assert repr(value) == str(value)
    assert repr(shared.exec("Own()")) == "[an own, an own, an own]"


def test_value_that_has_no_name_is_pickled_by_value(
    shared: mcjax_launch.Session, called: Any
) -> None:
    pytest.importorskip("cloudpickle")
    assert [add(10) for add in shared.run(called.make_adder)] == [10, 11, 12]


def test_output_comes_while_a_call_runs_and_before_it_returns(called: Any) -> None:
    lines: list[str] = []

    def hear(line: mcjax_launch.Line) -> None:
        lines.append(f"{line.rank} {line.stream} {line.text}")

    with session(processes=2, on_line=hear) as ranks:
        for number in range(20):
            ranks.exec(f"print('line', {number}, end='')\nprint()", ranks=1)
            assert lines.pop() == f"1 stdout line {number}"
    assert lines == []


def test_echoed_output_is_shown_before_a_call_returns(capsys: pytest.CaptureFixture[str]) -> None:
    with session(processes=2, echo=True, quiet=True) as ranks:
        for number in range(20):
            ranks.exec(f"import sys\nprint({number}, file=sys.stderr)\nprint('x', end='')")
            shown = capsys.readouterr()
            assert sorted(shown.err.splitlines()) == [f"[0] {number}", f"[1] {number}"]
            assert shown.out.count("x") == 2


def test_output_follows_the_standard_output_of_the_moment() -> None:
    text = io.StringIO()
    ranks = session(processes=1, echo=True)
    with ranks, contextlib.redirect_stdout(text):
        ranks.exec("print('redirected')")
    assert text.getvalue() == "[0] redirected\n"


def test_large_values_come_behind_an_unfinished_line(capsys: pytest.CaptureFixture[str]) -> None:
    with session(processes=2, echo=True, quiet=True) as ranks:
        for _ in range(3):
            assert ranks.exec("print('x', end='')\nlen(bytes(5 << 20))") == [5 << 20] * 2
            found = ranks.exec("print('y', end='')\nbytes(5 << 20)")
            assert found == [bytes(5 << 20)] * 2
    assert capsys.readouterr().out.count("y") == 6


def test_no_line_waits_for_other_ranks_once_a_call_is_over(called: Any) -> None:
    """As it does while ranks run that may print it too: after such a line the next one waits."""
    took = []
    with session(processes=2, echo=True, collapse="always") as ranks:
        for number in range(3):
            ranks.exec("print('of both')")
            began = time.monotonic()
            ranks.exec(f"print({number})", ranks=0)
            took.append(time.monotonic() - began)
    assert min(took) < MOMENT_S


def test_session_listens_nowhere(called: Any) -> None:
    with session() as ranks:
        ranks.run(called.rank)
        here = psutil.Process()
        family = [here, *here.children(recursive=True)]
        assert len(family) > 3
        kinds = {
            connection.status
            for process in family
            for connection in process.net_connections("inet")
        }
        assert psutil.CONN_LISTEN not in kinds


def test_second_call_is_quick(shared: mcjax_launch.Session, called: Any) -> None:
    """As a ratio: a tenth of what new ranks take."""
    began = time.monotonic()
    mcjax_launch.run(called.rank, processes=1, initialize=False, echo=False)
    new_s = time.monotonic() - began
    took = []
    for _ in range(10):
        began = time.monotonic()
        shared.run(called.rank)
        took.append(time.monotonic() - began)
    assert min(took) < new_s / 10


def test_ranks_of_several_hosts_make_calls(called: Any) -> None:
    with session(processes=None, hosts=["a", "b"], via=FAKE_SSH) as ranks:
        assert ranks.run(called.rank) == [0, 1]
        assert ranks.run(called.rank, ranks=1) == [1]


@pytest.mark.parametrize("hidden", ["", 'sys.modules["cloudpickle"] = None'])
def test_main_file_is_imported_once(tmp_path: Any, hidden: str) -> None:
    """Its functions share its names, so that what a call has set is there for the next."""
    path = tmp_path / "script.py"
    path.write_text(
        f"import sys\n{hidden}\n"
        + """
import mcjax_launch
print("imported", flush=True)
calls = 0
def count():
    global calls
    calls += 1
    return calls
if __name__ == "__main__":
    with mcjax_launch.session(processes=1, initialize=False) as ranks:
        print([ranks.run(count) for _ in range(3)], ranks.exec("calls, __name__"))
"""
    )
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == [
        "[0] imported",
        "[[1], [2], [3]] [(3, '__main__')]",
        "imported",
    ]


# --- faults in a call ---


def test_exception_fails_the_call_and_not_the_session(
    shared: mcjax_launch.Session, called: Any
) -> None:
    with pytest.raises(CallFailed) as raised:
        shared.exec("x = 1\nif int(__import__('os').environ['JAX_PROCESS_ID']): 1 / 0")
    error = raised.value
    assert str(error) == "ranks 1-2 raised ZeroDivisionError: division by zero"
    assert [own.rank for own in error.errors] == [1, 2]
    assert isinstance(error.__cause__, ZeroDivisionError)
    [note] = error.__notes__
    assert note.startswith('ranks 1-2:\nTraceback (most recent call last):\n  File "<cell ')
    assert "division by zero" in note and "mcjax" not in note and "1 / 0" in note
    assert not error.restarted and error.status == 1
    assert shared.exec("x") == [1, 1, 1]


def test_exceptions_of_any_class_come(shared: mcjax_launch.Session, called: Any) -> None:
    with pytest.raises(CallFailed, match=r"rank 1 raised called\.Own: a message") as raised:
        shared.run(called.fails, ("Own",), ranks=1)
    assert raised.value.errors[0].exception is None
    with pytest.raises(CallFailed, match="raised SyntaxError: "):
        shared.exec("1 +")
    with pytest.raises(CallFailed, match="raised TypeError: the value that unpicklable returned"):
        shared.run(called.unpicklable)
    assert shared.run(called.rank) == [0, 1, 2]


def test_call_that_cannot_be_packed_changes_nothing(shared: mcjax_launch.Session) -> None:
    with pytest.raises(TypeError, match="'toy' is not callable; launch runs a program"):
        shared.run("toy")  # type: ignore[arg-type]
    assert shared.exec("1") == [1, 1, 1]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (3, {}, r"args: 3 is not a list or tuple; write \(3,\)"),
        ("ab", {}, r"args: 'ab' is not a list or tuple; write \('ab',\)"),
        ((), 3, r"kwargs: 3 is not a dict; write \{'name': 3\}"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused(
    shared: mcjax_launch.Session, called: Any, args: Any, kwargs: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        shared.run(called.times, args, kwargs)


LOCK = threading.Lock()


def uses_a_lock() -> None:
    LOCK.acquire()


@pytest.mark.parametrize(
    ("function", "args", "what", "cure"),
    [
        (len, (1, LOCK), r"args\[1\], an argument of len,", "create it inside len"),
        (lambda: LOCK, (), "<lambda>, or what it uses,", "create it inside <lambda>"),
    ],
)
def test_what_cannot_be_pickled_is_named(
    shared: mcjax_launch.Session, function: Any, args: Any, what: str, cure: str
) -> None:
    pytest.importorskip("cloudpickle")
    why = "cannot be pickled: cannot pickle '_thread.lock' object"
    with pytest.raises(LaunchError, match=f"^run: {what} {why}; {cure}, in the ranks$"):
        shared.run(function, args)


def test_value_that_does_not_unpickle_here_names_its_rank(
    shared: mcjax_launch.Session, tmp_path: Any
) -> None:
    (tmp_path / "far.py").write_text("class Far: pass")
    text = f"import sys\nsys.path.append({str(tmp_path)!r})\nimport far\nfar.Far()"
    why = "returned in rank 2 cannot be unpickled here: ModuleNotFoundError: No module named 'far'"
    with pytest.raises(LaunchError, match=why):
        shared.exec(text, ranks=2)


def test_fork_that_comes_back_from_a_call_is_no_rank(shared: mcjax_launch.Session) -> None:
    fork = "import os, warnings\nwarnings.simplefilter('ignore')\nchild = os.fork()\nos.getpid()"
    pids = shared.exec(fork)
    assert shared.exec("os.getpid()") == pids
    assert shared.exec("os.waitpid(child, 0)[1]") == [0, 0, 0]
    for status in (0, 3):
        exits = f"import sys\nchild = os.fork()\nif not child: sys.exit({status})"
        shared.exec(exits)
        ended = shared.exec("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])")
        assert ended == [status] * 3
    with pytest.raises(CallFailed, match="rank 1 raised ZeroDivisionError"):
        shared.exec("os.fork()\n1 / 0", ranks=1)
    assert shared.exec("os.getpid()") == pids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("os.kill(os.getpid(), 9)", "rank 1 failed: killed by SIGKILL"),
        ("sys.exit(3)", "rank 1 failed: exit status 3"),
        ("os._exit(0)", "rank 1 exited with 0 in the middle of a session"),
        ("sys.exit()", "rank 1 exited with 0 in the middle of a session"),
    ],
)
def test_rank_that_ends_ends_the_session(text: str, message: str) -> None:
    with session() as ranks:
        with pytest.raises(JobFailed, match=message) as raised:
            ranks.exec(
                f"import os, sys, time\n{text} if os.environ['JAX_PROCESS_ID'] == '1' else 0"
            )
        assert raised.value.result.root_cause is not None
        over = rf"^the session is over: {message}.*; restart\(\) starts new ranks, without"
        with pytest.raises(JobFailed, match=over):
            ranks.exec("1")
        ranks.restart()
        assert ranks.exec("1") == [1, 1, 1]


def test_rank_that_is_killed_between_calls_ends_the_session(called: Any) -> None:
    with session() as ranks:
        [pid] = ranks.exec("import os; os.getpid()", ranks=1)
        os.kill(pid, 9)
        with pytest.raises(JobFailed, match="rank 1 failed: killed by SIGKILL"):
            while True:
                ranks.run(called.rank)


# --- interrupts ---

SLEEPS = "import time\nprint('ready')\ntime.sleep(1000)"


class Ready:
    """Event that is set when so many ranks have printed `ready`."""

    def __init__(self, count: int) -> None:
        self._semaphore = threading.Semaphore(0)
        self._count = count

    def hear(self, line: mcjax_launch.Line) -> None:
        if line.text == "ready":
            self._semaphore.release()

    def wait(self) -> None:
        for _ in range(self._count):
            assert self._semaphore.acquire(timeout=60)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that a busy machine starves are given time to react."""
    monkeypatch.setattr(call_progress, "INTERRUPT_S", LIMIT_S)


@pytest.mark.usefixtures("patient")
def test_interrupt_ends_the_call(called: Any) -> None:
    ready = Ready(2)
    with session(on_line=ready.hear) as ranks:
        ranks.exec("kept = 7")
        interrupter = threading.Thread(target=lambda: (ready.wait(), ranks.interrupt()))
        interrupter.start()
        with pytest.raises(CallFailed, match="ranks 0,2 raised KeyboardInterrupt") as raised:
            ranks.exec(SLEEPS, ranks="0,2")
        interrupter.join()
        assert not raised.value.restarted
        ranks.interrupt()  # of no call
        assert ranks.exec("kept") == [7, 7, 7]


@pytest.mark.usefixtures("patient")
def test_ctrl_c_interrupts_the_call() -> None:
    ready = Ready(3)
    with session(on_line=ready.hear) as ranks:
        ranks.exec("kept = 7")

        def interrupt() -> None:
            ready.wait()
            os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt) as raised:
            ranks.exec(SLEEPS)
        interrupter.join()
        assert not getattr(raised.value, "__notes__", [])
        assert ranks.exec("kept") == [7, 7, 7]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("is_late", [False, True])
def test_interrupt_while_a_call_is_handed_over_leaves_no_answer_behind(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Just before the ranks get it, or just after; in neither case are they started again."""
    with session() as ranks:
        ranks.exec("kept = 7")
        module = importlib.import_module("mcjax_launch.features.session.client.session")
        real = module.submit

        def submit(*args: Any, **kwargs: Any) -> None:
            if is_late:
                real(*args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt) as raised:
            patches.setattr(module, "submit", submit)
            ranks.exec("import time\ntime.sleep(0.5)\n'of the interrupted call'")
        assert not getattr(raised.value, "__notes__", [])
        assert ranks.exec("kept") == [7, 7, 7]


def test_ranks_that_do_not_react_are_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Ready(1)
    ignores = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with session(on_line=ready.hear) as ranks:
        interrupter = threading.Thread(target=lambda: (ready.wait(), ranks.interrupt()))
        interrupter.start()
        why = "rank 1 did not react to the interrupt within 3 s: all ranks have been started again"
        with pytest.raises(CallFailed, match=why) as raised:
            ranks.exec(ignores + SLEEPS, ranks=1)
        interrupter.join()
        assert raised.value.restarted and raised.value.unfinished == (1,)
        assert ranks.exec("'signal' in globals()") == [False] * 3


# --- its start and its end ---


def test_session_ends_with_its_block(jobs: Jobs, called: Any) -> None:
    with session() as ranks:
        ranks.run(called.rank)
    assert not jobs.left()
    ranks.close()
    with pytest.raises(LaunchError, match="the session is closed"):
        ranks.run(called.rank)


def test_ranks_end_by_themselves(tmp_path: Any) -> None:
    """Their handlers of the program's end run."""
    with session(processes=2) as ranks:
        path = str(tmp_path / "ended")
        ranks.exec(f"import atexit\natexit.register(lambda: open({path!r}, 'w').close())", ranks=1)
    assert os.path.exists(path)


def test_garbage_ends_its_ranks(jobs: Jobs, called: Any) -> None:
    ranks = session()
    ranks.run(called.rank)
    del ranks
    gc.collect()
    eventually(lambda: not jobs.left(), 10)


@pytest.mark.parametrize("end", ["", "1 / 0"])
def test_end_of_a_program_ends_its_open_session_without_a_word(jobs: Jobs, end: str) -> None:
    code = f"""
import mcjax_launch
ranks = mcjax_launch.session(processes=2, initialize=False)
ranks.exec("1")
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "" and "mcjax" not in done.stderr
    assert (done.stderr.splitlines() or ["nothing"])[-1] in (
        "nothing",
        "ZeroDivisionError: division by zero",
    )
    assert not jobs.left()


def test_restart_starts_new_ranks() -> None:
    with session() as ranks:
        before = ranks.exec("kept = 7\nimport os; os.getpid()")
        ranks.restart()
        after = ranks.exec("import os; os.getpid()")
        assert not set(before) & set(after)
        assert ranks.exec("'kept' in globals()") == [False] * 3


def test_block_begins_only_with_ranks_that_are_ready() -> None:
    reached = []
    with pytest.raises((JobFailed, LaunchError)), session(processes=None, hosts="a", via="false"):
        reached.append("the block")
    assert not reached


def test_idle_ranks_do_not_stall() -> None:
    """Also if only one of them has made the latest call."""
    with session(processes=2, stall_timeout=1.5) as ranks:
        assert ranks.exec("1", ranks=0) == [1]
        time.sleep(4)
        assert ranks.exec("1") == [1, 1]
        with pytest.raises(JobFailed, match="--stall-timeout: no rank has printed"):
            ranks.exec(SLEEPS)


@pytest.mark.parametrize("keyword", ["max_restarts", "num_hosts"])
def test_session_refuses_to_lose_its_state(keyword: str) -> None:
    with pytest.raises(TypeError, match=f"'{keyword}' is not for sessions"):
        session(**{keyword: 2})


def test_refused_job_is_an_error_at_once() -> None:
    with pytest.raises(LaunchError, match="processes: 0 is not a whole number"):
        session(processes=0)
    with pytest.raises(LaunchError, match="no such file"):
        session(hosts="nosuch.txt")


@pytest.mark.parametrize("faults", [8, pytest.param(30, marks=pytest.mark.nightly)])
def test_faults_at_random_moments_leave_a_usable_session(jobs: Jobs, faults: int) -> None:
    program = PROGRAMS / "faulty_calls.py"
    launcher = [sys.executable, str(program)]
    ended = jobs.run(faults, time.time_ns(), "plain", launcher=launcher, limit=300)
    assert ended.status == 0, ended.stderr
