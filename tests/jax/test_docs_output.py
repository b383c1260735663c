"""The pages show what is printed: each command that needs no other machine is run as it stands."""

import os
import re
from pathlib import Path
from subprocess import PIPE, STDOUT

import documented
import pages
import pytest
from documented import HERE, SHARES, TEST, TRAIN
from jobs import Jobs
from pages import ROOT, Session

from mcjax_launch.wire import timers

# Is traced for 5 s, from 10 s after initialize() on.
LONG = TRAIN.replace("range(3)", "range(170)") + "    __import__('time').sleep(0.1)\n"
MARKED = f"import pytest\npytestmark = pytest.mark.mcjax(processes=2, cpu_devices=2)\n{TEST}"
# Whose train.py need not use jax: they show where ranks run, or what is told of them. Others of
# their kind run JAX.
WITHOUT_JAX = (
    "cookbook.md: export MCJAX_VIA='gcloud compute tpus tpu-vm ssh NAME --zone=Z"
    " --worker={host} -q --command={command}'",
    'cookbook.md: docker run --rm --gpus all --shm-size=8g -v "$PWD:/work" -w /work my/image'
    " mcjax-launch -n 8 train.py",
    "cookbook.md: mcjax-launch --hosts box1,box2 --via 'docker exec -i {host}'"
    " --sync train.py train.py",
    "cookbook.md: mcjax-launch -n 4 --wrap 'nsys profile -o rank{process_id}' train.py",
    "index.md: mcjax-launch --max-restarts 3 train.py",
    "index.md: mcjax-launch -n 4 --log-dir logs --report run.html train.py",
    "index.md: mcjax-launch -n 4 train.py",
    "leave.md: mcjax-launch --detach -n 4 train.py > id",
    "leave.md: mcjax-launch --detach --timeout 1d -n 4 train.py > id",
    "reference.md: mcjax-launch -n 4 -d 2 --timeout 10m --events run.jsonl train.py > run.log 2>&1",
    "reference.md: mcjax-launch -n 4 --events run.jsonl train.py",
    "reference.md: mcjax-launch -n 4 --events fd:3 train.py 3>&1 >/dev/null 2>&1"
    " | jq -c 'del(.record, .ranks)'",
    "reference.md: mkfifo events",
    "schedulers.md: kubectl apply -f pods.yaml && kubectl rollout status statefulset/ws",
)
# Takes as long as ten others.
MANY = "index.md: mcjax-launch -n 64 -d 4 hello.py"
FAILURES, COOKBOOK = ROOT / "docs" / "failures.md", ROOT / "docs" / "cookbook.md"
HANG = "failures.md: mcjax-launch -n 4 -d 1 hang.py"
SKIP = "verifying.md: mcjax-launch -n 4 -d 1 skips.py"
FILES = {
    **{session: {"train.py": SHARES} for session in WITHOUT_JAX},
    HANG: {  # until the note is there, however late a busy machine starts the others
        "hang.py": pages.files(FAILURES)["hang.py"]
        .replace("time.sleep(40 ", "open('told' ")
        .replace("else 0)", "else '/dev/null')")
    },
    # Until its end comes it leaves the processors to other tests.
    "cookbook.md: mcjax-launch -n 2 -d 1 --preempted-status 75 train.py 1000000"
    " & sleep 20; kill $!; wait $!": {
        "train.py": pages.files(COOKBOOK)["train.py"].replace(
            "    step += 1\n", "    step += 1\n    __import__('time').sleep(0.1)\n"
        )
    },
    "cookbook.md: pytest --mcjax-compile-cache compiled:1G": {"test_marked.py": MARKED},
    "python.md: pytest --mcjax-compile-cache .mcjax-compiled": {"test_sum.py": MARKED},
    "cookbook.md: mcjax-launch -n 4 --profile traces train.py": {"train.py": LONG},
    "cookbook.md: mcjax-launch -n 4 --stdin chat.py": {
        "train.py": "import sys\nprint(len(sys.stdin.readlines()), 'lines')\n"
    },
}
INPUT = {
    "cookbook.md: mcjax-launch -n 4 --stdin chat.py": "hello\n",
}
STATUS = {  # of others it is 0, or what --preempted-status says
    "failures.md: mcjax-launch -n 3 -d 1 fails.py": 1,
    "failures.md: mcjax-launch -n 3 -d 2 --stall-timeout 10 stalls.py": 124,
    "preview.md: mcjax-launch -n 64 -d 4 --preview 17 train.py": 1,
    "preview.md: mcjax-launch -n 64 -d 4 --preview --on 20M train.py": 1,
    "python.md: mcjax-launch -n 3 -d 1 -m pytest -s test_sum.py::test_one_fails": 1,
    "python.md: python -m pytest test_sum.py": 1,
    "python.md: python start.py": 1,
    "reference.md: mcjax-launch -n 4 -d 2 --report run.json fails.py": 1,
    "verifying.md: mcjax-launch -n 4 -d 1 --verify-spmd differs.py": 1,
    "verifying.md: mcjax-launch -n 4 -d 1 --verify-spmd seeds.py": 1,
}
ENVIRONMENT = {
    HANG: {timers.SCALE: "0.1"},
    # Open MPI refuses root, and more ranks than cores; two variables of 4, and of 5 and 6.
    "schedulers.md: mpirun -n 4 mcjax-launch --no-hook train.py": {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "MPI4PY_MPIABI": "openmpi",  # MPICH may be here too
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    },
}


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(
            session, marks=pytest.mark.nightly if str(session) == MANY else pytest.mark.long
        )
        for session in documented.at(HERE)
    ],
    ids=str,
)
def test_documented_output_is_what_is_printed(jobs: Jobs, tmp_path: Path, session: Session) -> None:
    if lacking := documented.missing_tools(session):
        pytest.skip(f"needs {lacking[0]}")
    env = documented.prepare(session, tmp_path, FILES.get(str(session)))
    env |= ENVIRONMENT.get(str(session), {})
    typed = tmp_path / "typed"
    typed.write_text(INPUT.get(str(session), ""))
    hangs = str(session) == HANG
    if hangs:
        os.mkfifo(tmp_path / "told")
    for step in session.steps:
        with typed.open() as stdin:
            running = jobs.start(
                *("-ec", step.command),
                launcher=["bash"],
                cwd=tmp_path,
                env=env,
                stdin=stdin.fileno(),
                stderr=STDOUT if hangs else PIPE,
            )
        if hangs:
            running.read_until(" wait in ")
            (tmp_path / "told").write_text("")
        ended = running.finish(limit=250)
        documented.check(step, ended, tmp_path)
        preempted = re.search(r"--preempted-status (\d+)", step.command)
        otherwise = int(preempted[1]) if preempted else 0
        expected = STATUS.get(f"{session.page.name}: {step.command}", otherwise)
        assert ended.status == expected, ended.stdout + ended.stderr


def test_tables_name_only_commands_that_are_run_here() -> None:
    here = documented.at(HERE)
    steps = {f"{session.page.name}: {step.command}" for session in here for step in session.steps}
    assert {MANY, *FILES, *INPUT, *ENVIRONMENT} <= {str(session) for session in here}
    assert STATUS.keys() <= steps


def test_line_in_the_readme_is_that_of_its_page() -> None:
    [shown] = (each.steps[0].shown for each in documented.at(HERE) if str(each) == SKIP)
    [note] = (line for line in shown.splitlines() if line.startswith("mcjax-launch: "))
    assert f"    {note}\n" in (ROOT / "README.md").read_text()
