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
from jobs import Jobs, shell_script
from kubelet import expanded

# Arguments of which a part could be a line for the scheduler, or something to a shell.
HOSTILE = [
    *(
        "a\n#SBATCH -N evil\n#SBATCH",
        "\n",
        "\r\n# x",
        "it's",
        "'\n'",
        "\\\n\\x41",
        "$'\n'",
        "a\tb",
        "",
        " ",
        "\x1b[2J",
    ),
    *("$HOME\n`id`\n$(id)", '"\n"', "!\n!!", "\N{NO-BREAK SPACE}", "\udcff\n# x", "é\n1"),
]


def test_no_argument_becomes_a_directive(jobs: Jobs, tmp_path: Path) -> None:
    """The script's launcher gets exactly the words that were given; directives come before it."""
    ended = jobs.run("--emit", "slurm", "-x", "A=\n#SBATCH -q x", "x.py", *HOSTILE)
    assert ended.status == 0, ended.stderr
    code = ended.out.index(b"\n\nexec ")
    assert [line[:8] for line in ended.out[:code].splitlines()[1:]] == [b"#SBATCH "] * 3
    fake = shell_script(tmp_path / "fake", 'printf "%s\\0" "$@"')
    command = f"exec {sys.executable} -m mcjax_launch ".encode()
    assert ended.out.count(command) == 1
    script = tmp_path / "job"
    script.write_bytes(ended.out.replace(command, f"exec {fake} ".encode()))
    done = subprocess.run(["bash", script], capture_output=True)
    words = ["--env", "A=\n#SBATCH -q x", "--", "x.py", *HOSTILE]
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
