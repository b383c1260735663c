"""A hang explains itself while it lasts; here after seconds, not half a minute."""

import signal
from importlib.metadata import version
from subprocess import STDOUT

import jax
import pytest
from jobs import PROGRAMS, Jobs

# So soon an import that forks wait for is told of as well.
pytestmark = pytest.mark.afresh
SOON = {"MCJAX_TEST_TIME_SCALE": "0.1"}
SOURCE = (PROGRAMS / "hanging.py").read_text().splitlines()


def at(code: str) -> str:
    """Where the program has a line of code that contains this, the first time."""
    return f"hanging.py:{next(n for n, line in enumerate(SOURCE, 1) if code in line)}"


SAVE, BARRIER = at('("save"'), at('("joined"')
SLEEP, STEP, SYNC = at("time.sleep("), at("= step(x)"), at('("begun")')
COLLECTIVE, MORE, WITHOUT = at('("collective")'), at('("one more")'), at('("without it")')
LEFT = "rank 1, which has finished and is in JAX's exit barrier"
SHUT = f"rank 1, which is in JAX's exit barrier, in shutdown() at {at('distributed.shutdown()')}"
# What sync_global_devices() runs.
SUM = "_psum" if version("jax").startswith("0.6.") else "_identity_fn"
LATE = f"rank 1, which is in load_batch at {SLEEP} (last compiled jit({SUM}) at {SYNC})"
SERVED, SERVING = at('("served")'), at("server.serve_forever()")
FETCHED, JOIN = at('("fetched")'), at("loader.join()")
FETCHES = LATE.replace(
    f"load_batch at {SLEEP}", f"fetch at {JOIN}; another of its threads is in load_batch at {SLEEP}"
)
JOINS = LATE.replace(
    f"load_batch at {SLEEP}",
    f"join at {at('waits.join')}; another of its threads is in load_batch at {SLEEP}",
)
SERVES = LATE.replace(f"in load_batch at {SLEEP}", f"in a server's loop, in serve at {SERVING}")


def first_note(jobs: Jobs, way: str) -> str:
    """The first of the two lines of the note on a job that hangs, without its mark."""
    how = {"cwd": PROGRAMS, "env": SOON, "stderr": STDOUT}
    running = jobs.start("-n", 3, "-d", 1, "hanging.py", way, 100, **how)  # type: ignore[arg-type]
    text = running.read_until("end a job without progress\n")
    running.kill_now()
    running.finish()
    wait, advice = text[: text.index("end a job without progress\n")].splitlines()[-2:]
    pid = running.process.pid
    assert advice.startswith(f"mcjax-launch: kill -QUIT {pid} shows where all ranks are; ")
    return wait.removeprefix("mcjax-launch: ")


@pytest.mark.parametrize(("way", "where", "absent"), [
    ("initialize", f"in initialize() at {at('initialize()')}", f"rank 1, which has not called it and is in load_batch at {SLEEP}"),
    ("train", f"in jit(step) at {STEP}", f"rank 1, which is in load_batch at {SLEEP} (last compiled jit(step) at {STEP})"),
    ("collective", f"in sync_global_devices() at {COLLECTIVE}", LATE),
    ("barrier", f"at the barrier 'save' at {SAVE}", LATE),
    ("joined", f"at the barrier 'joined' at {BARRIER}", JOINS),
    ("uneven", "in JAX's exit barrier", LATE),
    ("served", f"in sync_global_devices() at {SERVED}", SERVES),
    ("fetched", f"in sync_global_devices() at {FETCHED}", FETCHES),
])  # fmt: skip
def test_waiting_ranks_and_missing_ranks_are_named(
    jobs: Jobs, way: str, where: str, absent: str
) -> None:
    waited, _, for_whom = first_note(jobs, way).partition(" s ")
    assert waited.startswith("ranks 0,2 have waited ")
    assert int(waited.split()[-1]) >= 3
    assert for_whom == f"{where} for {absent}"


@pytest.mark.every_jax
@pytest.mark.parametrize(("way", "where", "gone"), [
    ("ended", f"in sync_global_devices() at {MORE}", LEFT),
    ("left", f"in sync_global_devices() at {WITHOUT}", SHUT),
    ("steps", f"in jit(step) at {STEP}", LEFT),
])  # fmt: skip
def test_a_deadlock_ends_the_job(jobs: Jobs, way: str, where: str, gone: str) -> None:
    ended = jobs.run("-n", 3, "-d", 1, "hanging.py", way, 0, cwd=PROGRAMS, env=SOON)
    assert ended.status == 1
    [line] = [reported for reported in ended.report.splitlines() if " can never go on" in reported]
    assert line.startswith("ranks 0,2 have waited ")
    assert line.partition(" s ")[2] == f"{where} for {gone}, so the job can never go on"


def test_missing_coordinator_is_named(jobs: Jobs) -> None:
    line = first_note(jobs, "nobody")
    where = f"in initialize() at {at('192.0.2.7:5')}"
    assert line.startswith("ranks 0-2 have waited ")
    address = "coordinator_address=192.0.2.7:5, which is not an address of its machine"
    blame = f"rank 0 called {where.partition(' ')[2]} with {address}"
    assert line.endswith(f" {where} for one another: {blame}")


def test_differing_addresses_are_reported_at_once(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, "-d", 1, "hanging.py", "nobody", 0, cwd=PROGRAMS, stderr=STDOUT)
    text = running.read_until("of its machine\n")
    running.kill_now()
    running.finish()
    assert " with coordinator_address=192.0.2.7:5, which is not an address of its machine" in text
    ended = jobs.run("-n", 3, "-d", 1, "hanging.py", "versions", 0, cwd=PROGRAMS)
    assert ended.status == 0
    found = [line for line in ended.report.splitlines() if " has jax " in line]
    assert len(found) == 1  # when the second rank calls; which that is, is chance
    assert " 0.6.0" in found[0]
    assert f" {jax.__version__}" in found[0]


def test_ranks_that_wait_for_each_other_are_named(jobs: Jobs) -> None:
    line = first_note(jobs, "apart")
    here, there = at('("here")'), at("broadcast_one_to_all")
    two = f"ranks 0,2 in broadcast_one_to_all() at {there}"
    last = f"rank 1 in sync_global_devices() at {here}"
    assert line.startswith(f"{two} and {last} have waited ")
    assert line.endswith(" s for one another")


@pytest.mark.timeout(660)  # a busy machine takes long to compile
@pytest.mark.parametrize("way", ["loading", "busy", "compiling", "serving", "stepping"])
def test_slow_programs_raise_no_false_alarm(jobs: Jobs, way: str) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", way, 5, cwd=PROGRAMS, env=SOON, limit=600)
    assert ended.status == 0, ended.stderr
    assert ended.seconds > 4
    said = [
        reported
        for reported in ended.report.splitlines()
        if not reported.startswith("the job ran for ")
    ]
    assert said == []


@pytest.mark.timeout(660)
def test_slow_callback_is_no_deadlock(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n", 2, "-d", 1, "hanging.py", "callback", 5, cwd=PROGRAMS, env=SOON, limit=600
    )
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("done") == 2


def test_quiet_suppresses_hang_notes(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "-q", "hanging.py", "train", 5, cwd=PROGRAMS, env=SOON)
    assert ended.status == 0
    assert ended.report == ""


@pytest.mark.long
def test_rank_absent_from_the_first_collective_is_named(jobs: Jobs) -> None:
    """The others fail after half a minute, in what sets their communication up."""
    missed = "a collective in which others gave up waiting"
    ways = {
        # And "; it was in load_batch at ...", if there was time to ask it.
        "first": f"rank 1 did not reach {missed}",
        "never": f"rank 1 finished without reaching {missed}",
    }
    running = {
        way: jobs.start("-n", 3, "-d", 1, "hanging.py", way, 100, cwd=PROGRAMS) for way in ways
    }
    for way, did in ways.items():
        ended = running[way].finish(limit=120)
        assert ended.status == 1
        found = ended.report.splitlines()
        assert any(line.partition(";")[0] == did for line in found), ended.stderr
        [others] = [line for line in found if line.startswith("the 2 other ranks: ")]
        assert "failed as a consequence at " in others
        assert "Gloo context" not in ended.report


SPINNING = ["-n", 3, "--max-restarts", 1, "--grace", "1", "--stall-timeout"]


@pytest.mark.long
@pytest.mark.parametrize("thread", ["thread", "main"])
def test_stuck_rank_is_found_while_other_ranks_spin(jobs: Jobs, thread: str) -> None:
    """jax-ml/jax 38503: nothing of JAX's own ends such a job."""
    ended = jobs.run(*SPINNING, 20, "spinning.py", thread, cwd=PROGRAMS, env=SOON, limit=120)
    assert ended.status == 0, ended.stderr
    assert "--stall-timeout: no rank has printed, computed or compiled for 20 s" in ended.report
    assert ended.stdout.count("step 4 done") == 6
    assert ended.stdout.count("step 9 done") == 3
    waits = "ranks 0,2 have waited "
    assert any(
        waits in line and "for rank 1, which is at" in line for line in ended.report.splitlines()
    ), ended.report


@pytest.mark.long
def test_silent_steps_on_accelerators_are_no_hang(jobs: Jobs) -> None:
    """Each rank is in a call of C whenever one looks; but between two steps it runs Python."""
    ended = jobs.run(*SPINNING, 8, "spinning.py", "steps", cwd=PROGRAMS, env=SOON, limit=120)
    assert ended.status == 0, ended.stderr
    assert ended.seconds > 20
    assert "stall" not in ended.report


def test_advice_follows_the_stacks(jobs: Jobs) -> None:
    how = {"cwd": PROGRAMS, "env": SOON, "stderr": STDOUT}
    running = jobs.start("-n", 3, "-d", 1, "hanging.py", "uneven", 100, **how)  # type: ignore[arg-type]
    running.read_until("] done", 2)
    running.read_until("] ready")
    running.signal(signal.SIGQUIT)  # it has only begun to hang, if it does
    text = running.read_until("in JAX's exit barrier\n")
    assert "stacks of 3 ranks" in text
    running.read_until("end a job without progress\n")
    assert "hint" not in text
    running.signal(signal.SIGQUIT)
    text = running.read_until("hint: the ranks do not take the same number of steps")
    running.kill_now()
    running.finish()
    assert text.index("stacks of 3 ranks") < text.index(
        "waiting for the others in JAX's exit barrier"
    )
