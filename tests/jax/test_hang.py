"""A hang explains itself while it lasts; here after seconds, not half a minute."""

import re
from subprocess import STDOUT

import pytest
from jobs import PROGRAMS, Jobs
from rows import rows

# So soon an import that forks wait for is told of as well.
pytestmark = pytest.mark.afresh
SOON = {"MCJAX_TEST_TIME_SCALE": "0.1"}
SOURCE = (PROGRAMS / "hanging.py").read_text().splitlines()


def at(code: str) -> str:
    """Where the program has a line of code that contains this, the first time."""
    return f"hanging.py:{next(n for n, line in enumerate(SOURCE, 1) if code in line)}"


SAVE, SLEEP, STEP = at('("save"'), at("time.sleep("), at("= step(x)")
WITHOUT, SYNC = at('("without it")'), at('("begun")')
LEFT = "rank 1, which has finished and is in JAX's exit barrier"
SHUT = f"rank 1, which is in JAX's exit barrier, in shutdown() at {at('distributed.shutdown()')}"
LATE = f"rank 1, which is in load_batch at {SLEEP} (last compiled sync_global_devices at {SYNC})"


def without_numbers(line: str) -> str:
    """A line as without the numbers of programs, which small ones do not have."""
    line = re.sub(r"in program [\d,]+, (.*?), for ", r"in \1 for ", line)
    line = re.sub(r", in program [\d,]+ \(.*?\), for ", " for ", line)
    line = re.sub(r"has run (?:[\d,]+|none)(?: programs?)?(?: and|,) ", "", line)
    return re.sub(r" \(last compiled .*\)", "", line)


@pytest.mark.parametrize(("way", "where", "absent"), [
    ("initialize", f"in initialize() at {at('initialize()')}", f"rank 1, which has not called it and is in load_batch at {SLEEP}"),
    ("train", f"in jit(step) at {STEP}", f"rank 1, which is in load_batch at {SLEEP} (last compiled jit(step) at {STEP})"),
    ("barrier", f"at the barrier 'save' at {SAVE}", LATE),
    ("uneven", "in JAX's exit barrier", LATE),
])  # fmt: skip
def test_waiting_ranks_and_missing_ranks_are_named(
    jobs: Jobs, way: str, where: str, absent: str
) -> None:
    how = {"cwd": PROGRAMS, "env": SOON, "stderr": STDOUT}
    running = jobs.start("-n", 2, "-d", 1, "hanging.py", way, 100, **how)  # type: ignore[arg-type]
    text = running.read_until("end a job without progress\n")
    running.kill_now()
    running.finish()
    wait, advice = text[: text.index("end a job without progress\n")].splitlines()[-2:]
    assert advice.startswith(f"mcjax-launch: kill -QUIT {running.process.pid} shows where ")
    waited, _, for_whom = wait.partition(" s ")
    assert waited.startswith("mcjax-launch: rank 0 has waited ")
    assert int(waited.split()[-1]) >= 3
    assert without_numbers(for_whom) == without_numbers(f"{where} for {absent}")


DEADLOCKS = [
    ("left", f"in sync_global_devices() at {WITHOUT}", SHUT),
    ("barrier left", f"at the barrier 'save' at {SAVE}", LEFT),
    ("barrier, gone", f"at the barrier 'save' at {SAVE}", "rank 1, which exited with 0"),
]


@pytest.mark.parametrize(("way", "where", "gone"), rows(DEADLOCKS, *DEADLOCKS[:2]))
def test_a_deadlock_ends_the_job(jobs: Jobs, way: str, where: str, gone: str) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", way, 0, cwd=PROGRAMS, env=SOON)
    assert ended.status == 1
    [line] = [reported for reported in ended.report.splitlines() if " can never go on" in reported]
    assert line.startswith("rank 0 has waited ")
    waited = without_numbers(line.partition(" s ")[2])
    assert waited == f"{where} for {gone}, so the job can never go on"


@pytest.mark.timeout(660)
def test_slow_callback_is_no_deadlock(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n", 2, "-d", 1, "hanging.py", "callback", 5, cwd=PROGRAMS, env=SOON, limit=600
    )
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("done") == 2


def test_loading_stepping_and_serving_ranks_raise_no_alarm(jobs: Jobs) -> None:
    """All ranks load; they step in a thread; one serves after the end of the other."""
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", "unhurried", 4, cwd=PROGRAMS, env=SOON)
    assert ended.status == 0, ended.stderr
    said = [line for line in ended.report.splitlines() if not line.startswith("the job ran for ")]
    assert said == []


@pytest.mark.long
def test_rank_absent_from_the_first_collective_is_named(jobs: Jobs) -> None:
    """The other fails after half a minute, in what sets their communication up."""
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", "first", 100, cwd=PROGRAMS, limit=120)
    assert ended.status == 1
    # And "; it was in load_batch at ...", if there was time to ask it.
    did = "rank 1 did not reach a collective in which others gave up waiting"
    assert any(line.partition(";")[0] == did for line in ended.report.splitlines()), ended.stderr
    assert "Gloo context" not in ended.report


@pytest.mark.long
def test_stuck_rank_is_found_while_another_spins(jobs: Jobs) -> None:
    """jax-ml/jax 38503: nothing of JAX's own ends such a job."""
    options = ["-n", 2, "--max-restarts", 1, "--grace", "1", "--stall-timeout", 10]
    ended = jobs.run(*options, "spinning.py", cwd=PROGRAMS, env=SOON, limit=120)
    assert ended.status == 0, ended.stderr
    assert "--stall-timeout: no rank has printed, computed or compiled for 10 s" in ended.report
    assert ended.stdout.count("step 4 done") == 4
    assert ended.stdout.count("step 9 done") == 2
    assert any(
        line.startswith("rank 0 has waited ") and "for rank 1, which is at" in line
        for line in ended.report.splitlines()
    ), ended.report
