"""What --emit prints, and how a launcher started by a scheduler learns its place."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import Jobs, eventually, shell_script
from kubelet import expanded

PROGRAM = ["train.py", "{process_id}", "it's $(HOME)", "a$$b", "$", "$$(x) $HOME$"]
COMMAND = ["-x", "A=$(b) $$c", "--timeout", "10m", *PROGRAM]


def emitted(jobs: Jobs, *options: str) -> str:
    ended = jobs.run(*options, *COMMAND)
    assert ended.status == 0, ended.stderr
    return ended.stdout


def test_batch_script_repeats_the_options(jobs: Jobs) -> None:
    options = "--emit slurm -n 6 --num-hosts 3 --max-restarts 1 --min-hosts 1 --engine-option --partition=x"
    script = emitted(jobs, *options.split())
    for line in (
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --time=22",  # two attempts of ten minutes, with the grace, and one to spare
        "#SBATCH --requeue",
        "#SBATCH --no-kill",
        "#SBATCH --partition=x",
    ):
        assert line in script.splitlines()
    run = script.splitlines()[-1].replace("exec ", "printf '%s\\n' ")
    words = subprocess.run(["bash", "-c", run], capture_output=True, text=True).stdout.splitlines()
    assert words[-7:] == ["--", *PROGRAM]
    assert words[words.index("--env") + 1] == "A=$(b) $$c"
    assert "--max-restarts" in words
    assert {"--num-hosts", "--num-processes", "--emit"}.isdisjoint(words)


# Arguments of which a part could be a line for the scheduler, or something to a shell.
HOSTILE = [
    *(f"a\n{mark} -N evil\n{mark}" for mark in ("#$", "#SBATCH", "#PBS", "#BSUB", "#flux:")),
    *("\n", "\r\n#$ x", "it's", "'\n'", "\\\n\\x41", "$'\n'", "a\tb", "", " ", "\x1b[2J"),
    *("$HOME\n`id`\n$(id)", '"\n"', "!\n!!", "\N{NO-BREAK SPACE}", "\udcff\n#$ x", "é\n1"),
]


@pytest.mark.parametrize("kind", ["slurm", "pbs", "lsf", "sge", "flux"])
def test_no_argument_becomes_a_directive(jobs: Jobs, kind: str, tmp_path: Path) -> None:
    """The script's launcher gets exactly the words that were given."""
    ended = jobs.run("--emit", kind, "-x", "A=\n#$ -q x", "x.py", *HOSTILE)
    assert ended.status == 0, ended.stderr
    lines = ended.out.split(b"\n")
    end = next(at for at, line in enumerate(lines) if not line.startswith(b"#"))
    assert [line for line in lines[end:] if b"#" in line and not line.startswith(b"exec ")] == []
    fake = shell_script(tmp_path / "fake", 'printf "%s\\0" "$@"')
    command = f"exec {sys.executable} -m mcjax_launch ".encode()
    assert ended.out.count(command) == 1
    script = tmp_path / "job"
    script.write_bytes(ended.out.replace(command, f"exec {fake} ".encode()))
    environ = {**os.environ, "PBS_O_WORKDIR": str(tmp_path)}
    done = subprocess.run(["bash", script], capture_output=True, env=environ)
    words = ["--env", "A=\n#$ -q x", "--", "x.py", *HOSTILE]
    assert done.stdout == b"".join(os.fsencode(word) + b"\0" for word in words), done.stderr


# --- Kubernetes ---

# What YAML, or JSON in YAML, has rules of its own for; and what the templates have.
HOSTILE_IN_YAML = [
    *r"yes NULL ~ 1 1e3 0x1 1_0 .5 2026-01-01 - # { [x] &a *a !!str % @ | > ? --- ...".split(),
    *r'a: \ " {name} {} {{}} \ud83d\ude00'.split(),
    *"\x7f \u0085 \u2028 \ufeff \ud7ff \U0001f600 \U0010ffff".split(" "),
    *("- x", "a: b", "a #b", "  # if tpus", "## x"),
]


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_each_argument_is_one_value_of_a_manifest(jobs: Jobs, kind: str) -> None:
    """By the rules of two parsers: PyYAML's, and kubectl's where it is installed."""
    arguments = [word for word in HOSTILE + HOSTILE_IN_YAML if "\udcff" not in word]
    ended = jobs.run("--emit", kind, "--image", "i", "-x", "A=\n- x: |", "x.py", *arguments)
    assert ended.status == 0, ended.stderr
    parsed = [documents(ended.stdout)[-1]]
    if kubectl := shutil.which("kubectl"):
        show = [kubectl, "annotate", "--local", "-f", "-", "a=b", "-o", "json"]
        shown = subprocess.run(show, input=ended.out, capture_output=True, check=True).stdout
        parsed.append(json.loads(shown[shown.rindex(b'{\n    "apiVersion"') :]))
    for found in parsed:
        spec = found["spec"]
        spec = spec["replicatedJobs"][0]["template"]["spec"] if kind == "jobset" else spec
        (container,) = spec["template"]["spec"]["containers"]
        words = [expanded(word, {"HOME": "/"}) for word in container["command"]]
        assert words[-len(arguments) - 4 :] == ["--env", "A=\n- x: |", "--", "x.py", *arguments]


def test_failure_of_a_launcher_is_its_ranks(jobs: Jobs) -> None:
    place = "--num-hosts 2 --host-rank 1 --coordinator 127.0.0.1:1 --procs-per-host 2"
    ended = jobs.run(*place.split(), "sh", "-c", "[ $JAX_PROCESS_ID = 3 ] && exit 6; sleep 1000")
    assert ended.status == 6
    assert "rank 3 failed" in ended.report


def test_host_is_recognized_by_its_own_name(jobs: Jobs, tmp_path: Path) -> None:
    """Not as localhost, which all of them are: their logs may go to one folder."""
    place = ["--num-hosts", "2", "--host-rank", "1", "--coordinator", "127.0.0.1:1"]
    ended = jobs.run(*place, "--log-dir", tmp_path / "{host}", "echo", "on {host}")
    assert ended.stdout == f"[1] on {os.uname().nodename}\n"
    assert (tmp_path / os.uname().nodename / "1.out").exists()


@pytest.mark.parametrize(("quiet", "lines"), [([], 2), (["-q"], 1)])
def test_unresolved_coordinator_name_times_out(jobs: Jobs, quiet: list[str], lines: int) -> None:
    """No usage error: a Kubernetes Job would not try again."""
    place = "--num-hosts 2 --host-rank 0 --start-timeout 1 --coordinator no.invalid:1"
    ended = jobs.run(*quiet, *place.split(), "true")
    assert ended.status == 124
    *waits, last = ended.report.splitlines()
    assert waits == ["waiting for the name no.invalid"][2 - lines :]
    assert last.startswith("--coordinator no.invalid:1: no.invalid: ")
    assert last.endswith("; waited for 1 s (--start-timeout)")


def test_unresolved_name_without_need_to_wait_is_refused(jobs: Jobs) -> None:
    ended = jobs.run("--hosts", "localhost", "--coordinator", "no.invalid:1", "true")
    assert ended.status == 2


# --- restarts ---


def test_a_failed_job_is_started_again(jobs: Jobs, tmp_path: Path) -> None:
    tell = "echo try $MCJAX_RESTART at {coordinator_port}; [ $MCJAX_RESTART = 1 ] && exit"
    script = tell + "; [ {process_id} = 0 ] && exit 7; exec sleep 60"
    options = ["-n", "2", "--max-restarts", "3", "--log-dir", tmp_path]
    ended = jobs.run(*options, "sh", "-c", script)
    assert ended.status == 0
    assert "rank 0 failed: exit status 7" in ended.report
    assert "restarting in 1 s (1 of 3)" in ended.report
    assert ended.report.endswith("attempt 2 succeeded")
    tries = (tmp_path / "0.out").read_text().splitlines()
    assert [line.split(" at ")[0] for line in tries] == ["try 0", "try 1"]
    assert tries[0].split()[-1] != tries[1].split()[-1]  # a fresh port


def test_restarts_by_the_scheduler_are_counted(jobs: Jobs) -> None:
    words = ["--max-restarts", 1, "sh", "-c", "[ $MCJAX_RESTART = 4 ]"]
    ended = jobs.run(*words, env={"SLURM_RESTART_COUNT": "3"})
    assert ended.status == 0
    assert "restarting" in ended.report


def test_failure_of_all_restarts_lists_attempts(jobs: Jobs) -> None:
    ended = jobs.run("--max-restarts", "1", "sh", "-c", "exit $((7 + MCJAX_RESTART))")
    assert ended.status == 8
    assert ended.report.splitlines()[-2:] == [
        "earlier attempts:",
        "  attempt 1: rank 0 failed: exit status 7",
    ]


def test_no_restart_after_a_signal_of_the_users(jobs: Jobs) -> None:
    running = jobs.start("--max-restarts", "3", "sh", "-c", "echo ready; exec sleep 1000")
    running.read_until("ready")
    running.process.terminate()
    ended = running.finish()
    assert ended.status == 143
    assert "restarting" not in ended.report


def test_a_signal_while_the_reader_is_slow(jobs: Jobs) -> None:
    running = jobs.start("--max-restarts", "9", "sh", "-c", "seq 200000; exit 4")
    eventually(
        lambda: len(jobs.left()) == 1, 20
    )  # the launcher alone, with output that has no room
    running.process.terminate()
    ended = running.finish()
    assert "restarting" not in ended.report
