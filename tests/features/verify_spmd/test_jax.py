"""Ranks that run different programs, and such as only seem to."""

import json
import re
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from jobs import PROGRAMS, Jobs, Running, eventually
from rows import rows

DIVERGING = PROGRAMS / "diverging.py"
OVERTAKEN = PROGRAMS / "overtaken.py"
OPTIONS = ["-n", 2, "-d", 1, "--grace", "1", "--verify-spmd"]
# Ranks that stand still are looked at after a second, not three.
SOON = {"MCJAX_TEST_TIME_SCALE": "0.3"}

# jax 0.6 keeps less of what its programs are made from.
OLDEST = version("jax").startswith("0.6.")

# Way: what the report says, where L is a line of the program.
APART = {
    "code": "program #2: rank 0 {file}:{code} jit(multiply) f32[4,4] f32[4,4] · rank 1 {file}:{code} jit(multiply) f32[4,4] int[]",
    "shape": "program #2: rank 0 {file}:{shape} jit(total) f32[6,4] · rank 1 {file}:{shape} jit(total) f32[10,4]",
    "early": "program #2: rank 0 {file}:{early} jit(double) f32[4,4] · rank 1 finished without it",
    "constant": "program #2: ranks 0-1 {file}:{constant} jit(",
}


def places(program: Path = DIVERGING) -> dict[str, object]:
    """The line behind each mark `# at: way`."""
    lines = program.read_text().splitlines()
    return {
        line.partition("# at: ")[2]: number
        for number, line in enumerate(lines, 1)
        if "# at: " in line
    }


@pytest.mark.parametrize("way", rows([way for way in APART if way != "shape"], "constant"))
def test_divergence_ends_the_job(jobs: Jobs, way: str) -> None:
    ended = jobs.run(*OPTIONS, DIVERGING, way, cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    assert "--verify-spmd: the ranks run different programs\n" in ended.report
    assert APART[way].format(file="diverging.py", **places()) in ended.report
    assert "result" not in ended.stdout
    if way == "constant":
        where = "" if OLDEST else f" at diverging.py:{places()['constant']}"
        values = " · ".join(f"rank {n}: stablehlo.constant {n} f32[4]{where}" for n in range(2))
        assert f"they differ at: {values}\n" in ended.report


TOGETHER = PROGRAMS / "compiling_together.py"


def test_divergence_is_found_while_ranks_wait_in_the_compiler(jobs: Jobs) -> None:
    """Their ranks wait in the compiler, which none of them leaves."""
    ended = jobs.run(*OPTIONS, TOGETHER, "program", 3, cwd=PROGRAMS, env=SOON, limit=120)
    assert ended.status == 1, ended.stderr
    at = f"compiling_together.py:{places(TOGETHER)['program']}"
    assert f"program #2: rank 0 {at} jit(big) · rank 1 {at} jit(evaluate)\n" in ended.report
    assert "in its compilation\n" in ended.report


def test_slow_compilation_is_not_blamed(jobs: Jobs) -> None:
    ended = jobs.run(*OPTIONS, TOGETHER, "slow", 30, env=SOON, limit=300)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("] end\n") == 2


UNEQUAL = {"seeds": "argument params['w'] f32[4,4]", "keys": "argument key "}


@pytest.mark.parametrize("way", UNEQUAL)
def test_replicated_arguments_are_compared(jobs: Jobs, way: str) -> None:
    ended = jobs.run(*OPTIONS, "replicated.py", way, cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    assert "loss" not in ended.stdout
    at = places(PROGRAMS / "replicated.py")["step"]
    assert f"jit(step) at replicated.py:{at}: {UNEQUAL[way]}" in ended.report
    assert "differs between rank 0 · rank 1\n" in ended.report


HARMLESS = [
    "on some",
    "at other moments",
    "rank 0 alone",
    "rank 0 alone, with a mesh",
    "callbacks",
]


def test_harmless_differences_are_no_divergence(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, *OPTIONS[2:], DIVERGING, *HARMLESS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("] end\n") == 4


def test_consecutive_programs_of_a_rank_are_told_apart(jobs: Jobs, tmp_path: Path) -> None:
    """The end of the first is not the end of the rank."""
    python, program = sys.executable, PROGRAMS / "in_turn.py"
    script = f"{python} {program} first && {python} {program} second"
    report = tmp_path / "run.json"
    options = ["-n", 2, "-d", 1, "--verify-spmd", "--report", report]
    ended = jobs.run(*options, "bash", "-c", script)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("sum 6.0") == 2
    assert json.loads(report.read_text())["attempts"][0]["divergence"] == []


@pytest.mark.nightly
def test_correct_programs_are_not_blamed(jobs: Jobs) -> None:
    """Some eighty of them; with the option they would be ended, without it there is no warning."""
    program = PROGRAMS / "legitimate.py"
    ended = jobs.run("-n", 4, "-d", 2, "--verify-spmd", program, limit=240)
    assert ended.status == 0, ended.stderr[-4000:]
    assert "different programs" not in ended.stderr
    assert len(re.findall(r"all \d\d cases\n", ended.stdout)) == 4


PERMUTED = PROGRAMS / "permuted.py"
NUMBERS = (
    "jax.process_index() is not the rank here: 0 is rank 3, 1 is rank 0, 2 is rank 1, 3 is rank 2\n"
)


@pytest.mark.parametrize(("way", "verify"), [("right", ["--verify-spmd"]), ("some", [])])
def test_correct_programs_are_not_blamed_if_process_ids_differ_from_ranks(
    jobs: Jobs, way: str, verify: list[str]
) -> None:
    ended = jobs.run("-n", 4, "-d", 1, "--grace", "1", *verify, PERMUTED, way)
    assert ended.status == 0, ended.stderr
    assert ended.stderr.count(NUMBERS) == 1
    assert "different programs" not in ended.stderr


def test_divergence_is_found_if_process_ids_differ_from_ranks(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, *OPTIONS[2:], PERMUTED, "apart", cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    at = f"permuted.py:{places(PERMUTED)['apart']}"
    rank_0, rank_3 = f"rank 0 {at} jit(total) f32[4,4]", f"rank 3 {at} jit(mean) f32[4,4]"
    assert f"program #1: {rank_0} · {rank_3}" in ended.report
    assert "result" not in ended.stdout


def test_waiting_ranks_are_named_if_process_ids_differ_from_ranks(jobs: Jobs) -> None:
    options = ["-n", 4, "-d", 1, "--grace", "1", "--stall-timeout", "3"]
    ended = jobs.run(*options, PERMUTED, "late", cwd=PROGRAMS)
    assert ended.status == 124, ended.stderr
    where = f"permuted.py:{places(PERMUTED)['late']}"
    assert f"rank 3: waiting in jit(total) at {where}, which rank 0 has not reached" in ended.report


# The tour runs programs on the devices of others, which jax 0.6 refuses.
@pytest.mark.parametrize("program", rows(["toy.py", "tour.py"], "toy.py"))
def test_the_guides_programs_do_not_diverge(jobs: Jobs, program: str) -> None:
    ended = jobs.run("-n", 2, "-d", 2, "--verify-spmd", PROGRAMS / program)
    assert ended.status == 0, ended.stderr


def test_without_the_option_a_divergence_is_only_reported(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 1, DIVERGING, "shape", cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert APART["shape"].format(file="diverging.py", **places()) in ended.report


def test_rank_that_skips_a_program_is_found(jobs: Jobs) -> None:
    ended = jobs.run(*OPTIONS, OVERTAKEN, "metric", cwd=PROGRAMS, env=SOON)
    assert ended.status == 1, ended.stderr
    assert ended.seconds < 40
    at = places(OVERTAKEN)
    assert (
        f"rank 1 ran jit(loss) at overtaken.py:{at['loss']} in place of jit(metric) at "
        f"overtaken.py:{at['metric']} (program 12 of this mesh), which rank 0 ran\n"
    ) in ended.report
    assert "metric" not in ended.stdout


@pytest.mark.parametrize("way", ["data", "lag"])
def test_slow_ranks_are_no_divergence(jobs: Jobs, way: str) -> None:
    ended = jobs.run(*OPTIONS, OVERTAKEN, way, env=SOON)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("] end\n") == 2


GATED = PROGRAMS / "gated.py"
KEPT_OUT = ["ahead", "pmap", "thread", "donated", "callback", "with nothing exchanged"]


@pytest.mark.parametrize("way", rows(KEPT_OUT, "ahead", "pmap", "callback"))
def test_no_rank_gets_the_result_of_a_differing_program(jobs: Jobs, way: str) -> None:
    ended = jobs.run(*OPTIONS, GATED, way)
    assert ended.status == 1, ended.stderr
    assert "--verify-spmd: the ranks run different programs\n" in ended.report
    assert "result" not in ended.stdout


# Way: what is said of the difference, where {way} is the line that is marked with it.
DIFFERENCES = {
    "operation": "they differ at: rank 0: stablehlo.reduce add at differing.py:{sum} · rank 1: stablehlo.reduce maximum at differing.py:{operation}",
    "long constant": "they differ at: rank 0: stablehlo.constant 0, 1, 2, 3, ... (sha256 ",
    "shape": "argument batch: rank 0: f32[8,8] · rank 1: f32[16,8]",
    "sharding": "sharding of argument params['w']: rank 0: " + ("{{replicated}} · rank 1: {{devices=[1,2]<=[2]}}" if OLDEST else "P(None, None) · rank 1: P(None, 'all')"),
    "devices": "rank 1 runs jit(loss) at differing.py:{call} on a mesh whose devices are in the order ",
}  # fmt: skip


@pytest.mark.parametrize("way", rows(DIFFERENCES, "operation", "sharding", "devices"))
def test_differences_are_shown_and_saved(jobs: Jobs, tmp_path: Path, way: str) -> None:
    program = PROGRAMS / "differing.py"
    saved = (
        ["--log-dir", tmp_path]
        if way != "shape"
        else ["--report", tmp_path / "new" / "{job_id}.json"]
    )
    ended = jobs.run(*OPTIONS, *saved, program, way, cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    assert DIFFERENCES[way].format(**places(program)) in ended.report
    begin = tmp_path / "program1"
    if way == "shape":  # the name and the folder are those of the report
        (report,) = (tmp_path / "new").glob("*.json")
        begin = report.with_suffix(".program1")
    first, second = (Path(f"{begin}.rank{rank}.mlir") for rank in (0, 1))
    assert f"programs: {first} {second}" in ended.report
    texts = first.read_text(), second.read_text()
    assert texts[0] != texts[1] and all("func.func public @main" in text for text in texts)
    assert not any("loc(" in text for text in texts)


def test_programs_from_the_compilation_cache_are_held_too(jobs: Jobs, tmp_path: Path) -> None:
    for _ in range(2):
        ended = jobs.run(*OPTIONS, GATED, "cached", tmp_path)
        assert ended.status == 1, ended.stderr
        assert "--verify-spmd: the ranks run different programs\n" in ended.report
        assert "result" not in ended.stdout
    assert ended.stdout.count("cached\n") == 2  # in the first run some ranks may have been early


def test_held_program_is_released_if_ranks_wait_elsewhere(jobs: Jobs, tmp_path: Path) -> None:
    """It is let go after a while, with a note, and they are compared all the same."""
    program = [GATED, "held by a file", tmp_path / "file"]
    ended = jobs.run(*OPTIONS, *program, cwd=PROGRAMS, env=SOON)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("] result ") == 4
    [note] = re.findall(r"mcjax-launch: (rank 0 has waited .*)\n", ended.stderr)
    assert re.fullmatch(
        r"rank 0 has waited [3-9] s before program #1 jit\(exp\) at gated.py:\d+ for rank 1, "
        "and now runs it unverified",
        note,
    )


def test_rank_that_skipped_a_known_program_is_found(jobs: Jobs) -> None:
    """Also if it comes to a new one then, and the others wait for it in an old one.

    Before the new one is known, a repeated program before leaves the same trace.
    """
    ended = jobs.run(*OPTIONS, GATED, "skipped", cwd=PROGRAMS, env=SOON, limit=180)
    assert ended.status == 1, ended.stderr
    assert "result" not in ended.stdout
    skipped = r"rank 1 skipped jit\(max\)( at \S+)?(, or repeated jit\(sum\)( at \S+)?)?"
    assert re.search(rf"{skipped} \(program 8 of this mesh\)", ended.report), ended.report


def test_exception_in_a_signal_handler_ends_the_hold(jobs: Jobs, tmp_path: Path) -> None:
    """What waited before waits on with its next call, and is let go when all are there."""
    ended = jobs.run(*OPTIONS, GATED, "interrupted", tmp_path)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("] alarm\n") == 1
    assert ended.stdout.count("] result ") == 2
    assert "waited" not in ended.stderr


def test_rank_held_too_long_is_a_stall(jobs: Jobs) -> None:
    ended = jobs.run(*OPTIONS, "--stall-timeout", "3", GATED, "never", cwd=PROGRAMS)
    assert ended.status == 124, ended.stderr
    line = places(GATED)["never"]
    words = f"rank 0: waiting in jit(_lambda) at gated.py:{line}, which rank 1 has not reached"
    assert words in ended.report
    assert "result" not in ended.stdout


def test_no_program_is_held_after_an_interrupt(jobs: Jobs) -> None:
    """A checkpoint may have to be written; the ranks do so at moments of their own."""
    options = ["-n", 2, "-d", 1, "--grace", "20", "--verify-spmd"]
    job = jobs.start(*options, GATED, "saved")
    job.read_until("ready", 2)
    job.signal(signal.SIGINT)
    ended = job.finish()
    assert ended.status == 130, ended.stderr
    assert ended.stdout.count("] saved 1.0\n") == 2


def held(jobs: Jobs, *options: object) -> Running:
    """A job whose rank 0 waits at the gate for rank 1."""
    job = jobs.start(*OPTIONS, *options, GATED, "never")
    job.read_until("] held\n")
    return job


def test_death_of_the_launcher_releases_held_ranks(jobs: Jobs) -> None:
    job = held(jobs)
    job.signal(signal.SIGKILL)
    job.process.wait()
    eventually(lambda: not jobs.left(), 20)
    assert "result" not in job.finish().stdout


def test_loss_of_an_agent_releases_held_ranks(jobs: Jobs) -> None:
    """Of the host of the rank that has not come."""
    job = held(jobs, "--hosts", "a,b", "--via", "env HOST={host}")
    guardian = psutil.Process(job.process.pid).children()[-1]
    [agent] = guardian.children()
    agent.kill()
    ended = job.finish()
    assert ended.status == 255, ended.stderr
    assert jobs.left() == []
    assert "host b: its agent was killed by SIGKILL" in ended.report
    assert "result" not in ended.stdout
