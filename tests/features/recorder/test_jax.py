"""Programs that ranks run: no healthy job is accused, and differences are named."""

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from subprocess import STDOUT

import pytest
from jobs import PROGRAMS, Jobs
from rows import rows

FAULTY = (PROGRAMS / "faulty.py").read_text().splitlines()
EVALUATE, CALLBACK = (
    f"faulty.py:{next(n for n, line in enumerate(FAULTY, 1) if f'# at: {place}' in line)}"
    for place in ("evaluate", "callback")
)
HARMLESS = [
    *("on some", "at other moments", "rank 0 alone", "rank 0 alone, with a mesh", "callbacks"),
]


@pytest.mark.every_jax
def test_no_healthy_program_is_accused(jobs: Jobs) -> None:
    """Whoever calls: C code, threads, finalizers, after exceptions, with checks for NaNs."""
    ended = jobs.run("-n", 3, "-d", 1, "--verify-spmd", "-v", PROGRAMS / "healthy.py")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("found the nan") == ended.stdout.count("end") == 3
    # As the program's loader launches such a program, too, beside the main thread.
    report = ended.report.replace("not compared: several threads", "")
    for words in ("different", "of this mesh", "not compared", "does not"):
        assert words not in report


@pytest.mark.parametrize(("ranks", "program"), rows([
    (4, ("diverging.py", *HARMLESS)), (4, ("permuted.py", "right")), (2, ("tour.py",)), (2, ("toy.py",)),
], (2, ("toy.py",))))  # fmt: skip
def test_harmless_differences_of_ranks_end_no_job(
    jobs: Jobs, ranks: int, program: tuple[str, ...]
) -> None:
    ended = jobs.run("-n", ranks, "-d", 1, "--verify-spmd", *program, cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert "different programs" not in ended.stderr


@pytest.mark.nightly
def test_correct_programs_are_not_accused(jobs: Jobs) -> None:
    """Some eighty of them."""
    program = PROGRAMS / "legitimate.py"
    ended = jobs.run("-n", 4, "-d", 2, "--verify-spmd", program, limit=240)
    assert ended.status == 0, ended.stderr[-4000:]
    assert "different programs" not in ended.stderr
    assert len(re.findall(r"all \d\d cases\n", ended.stdout)) == 4


def test_consecutive_programs_of_a_rank_are_told_apart(jobs: Jobs, tmp_path: Path) -> None:
    """The end of the first is not the end of the rank."""
    python, program = sys.executable, PROGRAMS / "in_turn.py"
    script = f"{python} {program} first && {python} {program} second"
    report = tmp_path / "run.json"
    ended = jobs.run("-n", 2, "-d", 1, "--verify-spmd", "--report", report, "bash", "-c", script)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("sum 6.0") == 2
    assert json.loads(report.read_text())["attempts"][0]["divergence"] == []


# jax 0.6 does not know where a constant is from.
CONSTANT_AT = "" if version("jax").startswith("0.6.") else r" at faulty.py:\d+"
#: What is said of the last of two ranks.
FAULTS = {
    "constant": (
        r"rank 1 ran another jit\(train\) at faulty.py:\d+ than rank 0 \(program 1 of this mesh\); "
        rf"they differ at: rank 0: stablehlo.constant 0.1 f32\[\]{CONSTANT_AT} · "
        rf"rank 1: stablehlo.constant 0.2 f32\[\]{CONSTANT_AT}; results may be wrong"
    ),
    "callback": (
        r"rank 1 ran another jit\(train\) at .*; they differ at: rank 0: no callback · "
        rf"rank 1: a callback \(jax.debug.print or the like\) at {CALLBACK};"
    ),
    "skip": rf"rank 1 skipped jit\(evaluate\) at {EVALUATE}, or ran jit\(update\) at .* once more \(program 23 ",
    "repeat": r"rank 1 .*ran jit\(evaluate\) at faulty.py:\d+ once more \(program 24 of this mesh\)",
    "order": r"rank 1 ran jit\(.lambda.?\) at faulty.py:\d+ where rank 0 ran .*: another order",
}  # fmt: skip


@pytest.mark.parametrize("way", rows(FAULTS, "constant", "skip"))
def test_difference_is_named_while_the_job_runs(jobs: Jobs, way: str) -> None:
    how = {"cwd": PROGRAMS, "stderr": STDOUT}
    running = jobs.start("-n", 2, "-d", 1, "faulty.py", way, **how)  # type: ignore[arg-type]
    text = running.read_until("results may be wrong from there on\n")
    running.kill_now()
    running.finish()
    assert re.search(FAULTS[way], text), text


@pytest.mark.parametrize("way", ["constant", "at once"])
def test_verify_spmd_ends_the_job_at_a_difference(jobs: Jobs, way: str, tmp_path: Path) -> None:
    """Also if the ranks have ended before it could be told."""
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    program = ("faulty.py", way) if way == "constant" else (tmp_path / "at_once.py",)
    ended = jobs.run("-n", 2, "-d", 1, "--grace", 1, "--verify-spmd", *program, cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    assert "--verify-spmd: the ranks run different programs\n" in ended.report
    assert "than rank 0 (program 1 of this mesh)\n" in ended.report
    assert "they differ at: rank 0: stablehlo.constant" in ended.report


AT_ONCE = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",))
x = jax.make_array_from_callback((2,), NamedSharding(mesh, PartitionSpec("x")), lambda _: jnp.ones(1))
scale = 2.0 + jax.process_index()
jax.jit(lambda x: (x * scale).sum())(x)
print("over")
"""


def test_switch_turns_the_record_off(jobs: Jobs) -> None:
    off = {"MCJAX_RECORD": "0"}
    ended = jobs.run("-n", 2, "-d", 1, "-v", PROGRAMS / "toy.py", env=off)
    assert ended.status == 0
    assert "rank 0 does not record programs: MCJAX_RECORD=0\n" in ended.report


PRINTING = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))

@jax.jit
def step(w, x):
    loss, gradient = jax.value_and_grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
    if jax.process_index() == 0:
        jax.debug.print("loss {}", loss)
    return w - 0.1 * gradient

w = jax.device_put(np.eye(8, dtype=np.float32), NamedSharding(mesh, P()))
rows = NamedSharding(mesh, P("d"))
x = jax.make_array_from_process_local_data(rows, np.ones((2, 8), np.float32))
for _ in range(100):
    w = step(w, x)
"""


@pytest.mark.every_jax
def test_difference_in_which_a_collective_fails_at_once_is_named(
    jobs: Jobs, tmp_path: Path
) -> None:
    """It has begun when Gloo ends it; and no hint advises what was done already."""
    (tmp_path / "printing.py").write_text(PRINTING)
    ended = jobs.run("-n", 2, "-d", 1, "--verify-spmd", "printing.py", cwd=tmp_path)
    assert ended.status not in (0, 124)
    assert "rank 1 ran another jit(step) at printing.py:" in ended.report
    callback = r"rank 0: a callback \(jax.debug.print or the like\) at printing.py:12 · rank 1: no callback"
    assert re.search(f"they differ at: {callback}", ended.report), ended.report
    assert "hint" not in ended.report


def test_other_program_whose_compilation_waits_for_other_ranks_is_shown(
    jobs: Jobs, tmp_path: Path
) -> None:
    """As on GPUs: rank 1 waits for what rank 0 compiles, which is another program."""
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    env = {"JAX_SHARE_BINARY_BETWEEN_HOSTS": "1", "MCJAX_TEST_TIME_SCALE": "0.1"}
    how = {"cwd": tmp_path, "stderr": STDOUT, "env": env}
    options = ("-x", "JAX_SHARE_BINARY_BETWEEN_HOSTS", "--compile-once", "off")
    running = jobs.start("-n", 2, "-d", 1, *options, "at_once.py", **how)  # type: ignore[arg-type]
    text = running.read_until("where compilation waits for other ranks, it never ends\n")
    running.kill_now()
    running.finish()
    said = r"rank 1 compiles another jit\(.lambda.?\) at at_once.py:9 than rank 0; they differ at: rank 0: "
    assert re.search(said, text), text


HANGING = (PROGRAMS / "hanging.py").read_text().splitlines()
SHIFT, END = (
    f"hanging.py:{next(n for n, line in enumerate(HANGING, 1) if code in line)}"
    for code in ("= shift(x", "x.block_until_ready()")
)


def test_rank_that_has_ended_without_a_program_of_the_others_is_named(jobs: Jobs) -> None:
    """By the counts: the line at which the other one waits is not the program's."""
    env = {"MCJAX_TEST_TIME_SCALE": "0.1"}
    ended = jobs.run("-n", 2, "-d", 1, "hanging.py", "batches", 0, cwd=PROGRAMS, env=env)
    assert ended.status == 1
    said = f"rank 1 ended after 9 programs of this mesh: rank 0 began jit(shift) at {SHIFT}"
    assert said in ended.report
    assert "; the job can never go on\nhint: the ranks do not take the same number" in ended.report


# What differs in the last of three ranks; in one program, from which launch on.
_W, _SMALL = r"argument params\['w'\]", r"argument params\['small'\]"
REPLICAS = {
    "late": rf"{_W} of jit\(step\) at replicas.py:\d+ \(program 1 ",
    "seed": rf"{_W} of jit\(step\) at replicas.py:\d+ \(program 1 ",
    "checkpoint": rf"{_W} of jit\(step\) .*\(program 1 ",
    "uninitialised": r"argument params\['b'\] of jit\(step\) .*\(program 1 ",
    "tensor-parallel": rf"part \[:, 16:32\] of {_W} of jit\(step\) .*\(program 1 ",
    "key": r"argument params\['key'\] of jit\(step\) .*\(program 1 ",
    **dict.fromkeys(("bfloat16", "float8_e4m3fn", "int4", "bool", "complex64"), f"{_SMALL} of "),
    "rate": r"output \[0\]\['b'\] and 1 more of jit\(train\) at replicas.py:\d+ \(program 4 ",
    "bit": rf"{_W} of jit\(step\) .*\(program 32 ",
    "donated": r"output \[0\]\['w'\] of jit\(step\) .*\(program 32 ",
    "stale": r"argument params\['b'\] of jit\(step\) .*\(program 32 ",
    "restored": rf"{_W} of jit\(evaluate\) at replicas.py:\d+ \(program 32 ",
    "mapped": r"output \[0\] of jit\(.lambda.?\) .*\(program 32 of this mesh\)\nhint: with out_specs=P\(\)",
}


@pytest.mark.parametrize("way", rows(REPLICAS, "tensor-parallel", "bit"))
def test_values_of_replicated_arrays_are_compared(jobs: Jobs, way: str) -> None:
    """While all ranks print the same loss."""
    job = ("-n", 3, "-d", 2, "--grace", 1, "--verify-spmd", "replicas.py", way)
    ended = jobs.run(*job, cwd=PROGRAMS)
    assert ended.status == 1, ended.stderr
    assert "--verify-spmd: arrays that are called replicated are not\n" in ended.report
    each = way in ("uninitialised", "mapped")
    who, than = ("ranks 0-2 each hold", "") if each else ("rank 2 holds", " than ranks 0-1")
    assert re.search(f"{who} other bits{than} in {REPLICAS[way]}", ended.report), ended.report


@pytest.mark.every_jax
def test_equal_replicas_are_recorded(jobs: Jobs, tmp_path: Path) -> None:
    """Every array of the program: nothing is left out."""
    report = tmp_path / "run.json"
    job = ("-n", 3, "-d", 2, "-v", "--verify-spmd", "--report", report, "replicas.py")
    ended = jobs.run(*job, cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert "does not compare" not in ended.report
    values = json.loads(report.read_text())["attempts"][0]["values"]
    assert values.items() >= {"arrays": 3, "ranks": 3}.items()
    assert values["number"] >= 20
    assert values["count"] >= 1 + 2 * 19  # the arguments of all, the outputs of all but the last
    assert re.fullmatch(r"jit\(step\) at replicas.py:\d+", values["program"])


@pytest.mark.every_jax
def test_settings_of_jax_do_not_disturb_the_comparison(jobs: Jobs) -> None:
    """Nor does it disturb what they are for."""
    job = ("-n", 2, "-d", 2, "-v", "--verify-spmd", "settings.py")
    ended = jobs.run(*job, cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("the end") == 2
    assert "does not compare" not in ended.report
