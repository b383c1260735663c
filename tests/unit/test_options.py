"""From words to typed options, and back to words; and what is wrong with them, in one format."""

import re
from pathlib import Path

import click
import pytest

from mcjax_launch.cli import usage_errors
from mcjax_launch.cli.command import command, main
from mcjax_launch.cli.origins import rewrite_words
from mcjax_launch.cli.warnings import find_misplaced_options, find_warnings
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.options.options import Options


def read(*words: str) -> tuple[Options, click.Context]:
    context = command.make_context("mcjax-launch", list(words))
    return Options(**context.params), context


def test_each_option_has_one_field() -> None:
    assert set(Options._fields) >= {*Options.declared, "program"}
    assert {*Options.declared, "program"} == {
        str(param.name) for param in command.params if param.expose_value
    }


def test_excluded_and_needed_options_exist() -> None:
    names = {name for option in Options.declared.values() for name in option.names}
    for option in Options.declared.values():
        texts = [text.partition(":")[0] for text in option.excludes]
        assert {*texts, *option.needs.split()[:1]} <= names, option.name


def test_option_values_are_typed() -> None:
    words = "-n 4 --show 0,2-3 --timeout 5m -x A=1 -x B -q --color never train.py -n 2"
    options, _ = read(*words.split())
    assert options.num_processes == 4
    assert options.show == {0, 2, 3}
    assert options.timeout == 300
    assert options.env == ("A=1", "B")
    assert options.quiet and not options.verbose
    assert options.color == "never"
    assert options.program == ("train.py", "-n", "2")


def test_omitted_options_have_defaults() -> None:
    options, context = read()
    assert (options.program, options.env, options.max_restarts) == ((), (), 0)
    assert options.color == "auto"
    assert options.num_processes is options.hosts is options.show is options.timeout is None
    assert rewrite_words(options, context) == ["--"]


GIVEN = {
    "-n 4 -q train.py": "--num-processes 4 --quiet -- train.py",
    "-x A=1 -x B=2 -- bash -c ls": "--env A=1 --env B=2 -- bash -c ls",
    "--show 0,1,2,7 a.py": "--show 0-2,7 -- a.py",
    "--timeout 90m --grace 0.5 a.py": "--timeout 5400 --grace 0.5 -- a.py",
    "--timeout 1234567s --grace 0 a.py": "--timeout 1234567 --grace 0 -- a.py",
    "--color auto --max-restarts 0 a.py": "--color auto --max-restarts 0 -- a.py",
    "--timeout 0 --grace 1m a.py": "--timeout 0 --grace 60 -- a.py",
    "a.py -n 4": "-- a.py -n 4",
    "--stdin a.py": "--stdin -- a.py",
    "--preload jax,flax.linen a.py": "--preload jax,flax.linen -- a.py",
    "--wrap env --wrap 0:ltrace a.py": "--wrap env --wrap 0:ltrace -- a.py",
}


@pytest.mark.parametrize("given", GIVEN)
def test_command_line_is_rewritten(given: str) -> None:
    options, context = read(*given.split())
    written = rewrite_words(options, context)
    expected = GIVEN[given].split()
    assert sorted(written) == sorted(expected)
    assert written[written.index("--") :] == expected[expected.index("--") :]
    again, _ = read(*written)
    assert again == options


def test_the_environment_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCJAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("MCJAX_QUIET", "0")
    options, context = read("a.py")
    assert rewrite_words(options, context) == ["--num-processes", "3", "--", "a.py"]


WRONG = {
    "--xyz a.py": "--xyz: no such option",
    "--timeot 5 a.py": "--timeot: no such option; did you mean --timeout?",
    "-n": "-n: needs a value: -n N",
    "-n 0 a.py": "-n: '0' is not a whole number of 1 or more",
    "--num-processes=0 a.py": "--num-processes: '0' is not a whole number of 1 or more",
    "--host-rank -1 a.py": "--host-rank: '-1' is not a whole number of 0 or more",
    "--quiet=1 a.py": "--quiet: does not take a value",
    "--color red a.py": "--color: 'red' is not one of 'auto', 'always', 'never'",
    "--timeout 5x a.py": "--timeout: '5x' is not a duration: write 90, 90s, 5m, 1h30m or 1d",
    "--stdin 0,2 a.py": "--stdin 0,2: takes no ranks any more: rank 0 gets the launcher's standard "
    "input, and a file is read by each rank itself",
    "--wrap 0: a.py": "--wrap: '0:' names no command: write 'strace -f' or '0:gdb -ex run --args'",
    "--wrap 'env a.py": """--wrap: "'env": no closing quotation""",
    "--profile x --no-hook a.py": "--profile cannot be combined with --no-hook",
    "--via blaunch a.py": "--via: 'blaunch' was removed: hosts are reached by ssh, the default; where that is not allowed, start a launcher on each with --num-hosts",
    "-x A-B=1 true": "-x A-B=...: 'A-B' is not a valid variable name",
    "--debugpy 5678 a.py": "--debugpy was removed: mcjax-launch -m debugpy --listen "
    "'localhost:567{process_id}' --wait-for-client train.py",
    "--nice 5 a.py": "--nice was removed: --wrap 'nice -n 10'",
    "--setup-again a.py": "--setup-again was removed: --setup runs at each start",
    "--on-rank-failure restart:1 a.py": "--on-rank-failure: 'restart:1' was removed: use --max-restarts N, which "
    "restarts the whole job, or continue",
    "--verify-spmd --on-rank-failure continue a.py": "--verify-spmd cannot be combined with --on-rank-failure: ranks that go on run other programs",
    "--verify-spmd --no-hook true": "--verify-spmd cannot be combined with --no-hook",
    "--collapse always --no-prefix true": "--collapse always cannot be combined with --no-prefix",
    "--hosts - --stdin true": "--hosts - reads standard input itself: with --stdin, name a file",
    "--hosts a:1 -n 2 true": "-n 2: the hosts have 1 slot; add hosts or slots (slots=K in the "
    "hosts file, --procs-per-host K)",
    "-q -v true": "-q cannot be combined with -v",
    "--host-rank 1 true": "--host-rank needs --num-hosts N and --coordinator HOST:PORT",
    "--name x true": "--name needs --emit KIND",
    "--via ssh true": "--via ssh: no hosts to reach; name them with --hosts",
    "-n 4 --procs-per-host 2 true": "--procs-per-host 2: this machine alone cannot take -n 4; add "
    "--hosts, or leave out --procs-per-host",
    "-m train.py": "-m train.py: not the name of a module; leave out -m, or write -m train",
    "-m ./pkg/train": "-m ./pkg/train: not the name of a module; write -m pkg.train",
    "--log-dir logs/{proces_id} true": "--log-dir logs/{proces_id}: {proces_id} is not a "
    "placeholder; did you mean {process_id}?",
    "--report {jobid}.json true": "--report {jobid}.json: {jobid} is not a placeholder; did you "
    "mean {job_id}?",
    "-n 65537 true": "-n: '65537' is more than 65536",
    "--hosts a[1-2] --procs-per-host 40000 true": "80000 ranks: a job has 65536 at most; set -n",
    "-n 4": "no PROGRAM: try mcjax-launch -n 4 train.py, or --help",
}


@pytest.mark.parametrize("words", WRONG)
def test_usage_errors_have_one_format(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert capfd.readouterr() == ("", f"mcjax-launch: {WRONG[words]}\n")


def test_error_from_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MCJAX_NUM_PROCESSES", "8")
    assert main(["--hosts", "a", "true"]) == 2
    assert ": -n 8 (from MCJAX_NUM_PROCESSES): the hosts have 1 slot;" in capfd.readouterr().err
    assert main(["-n", "7", "--hosts", "a", "true"]) == 2
    assert ": -n 7: the hosts have 1 slot;" in capfd.readouterr().err
    monkeypatch.setenv("MCJAX_START_TIMEOUT", "5")
    assert main(["--no-hook", "true"]) == 2
    err = capfd.readouterr().err
    assert ": --start-timeout (from MCJAX_START_TIMEOUT) cannot be combined with --no-hook\n" in err


# Variables, and what is said of those that are no option's; nothing of those that ranks get.
VARIABLES = {
    "MCJAX_LOGDIR": "; did you mean MCJAX_LOG_DIR?",
    "MCJAX_NPROCESSES": "; did you mean MCJAX_NUM_PROCESSES?",
    "MCJAX_XYZZY": " and has no effect",
    **dict.fromkeys(("MCJAX_JOB_ID", "MCJAX_RESTART", "MCJAX_LOCAL_PROCESS_ID"), ""),
    **dict.fromkeys(("MCJAX_HOOK_BIND", "MCJAX_DEBUG"), ""),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_unknown_variable_is_warned_of(
    variable: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "1")
    assert main(["--dry-run", "-q", "true"]) == 0
    line = f"mcjax-launch: {variable} is not the variable of an option{VARIABLES[variable]}\n"
    assert capfd.readouterr().err == (line if VARIABLES[variable] else "")


@pytest.mark.parametrize("name", ["rehearse", "black-box"])
def test_variable_of_a_removed_option_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    variable = f"MCJAX_{name.upper().replace('-', '_')}"
    monkeypatch.setenv(variable, "x")
    assert main(["--dry-run", "true"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"mcjax-launch: {variable}: --{name} was removed: ")


# What stands on the command line, and what it is taken for; nothing where it is left alone.
AFTER_PROGRAM = {
    "a.py -n 2": "-n 2: passed on to a.py; options of mcjax-launch go before PROGRAM: "
    "mcjax-launch -n 2 a.py ...",
    "a.py -n2 --lr 1 --cpu-devices=4": "-n2 --cpu-devices=4: passed on to a.py; options of "
    "mcjax-launch go before PROGRAM: mcjax-launch -n2 --cpu-devices=4 a.py ...",
    "-m pkg.a --hosts h": "--hosts h: passed on to pkg.a; options of mcjax-launch go before "
    "PROGRAM: mcjax-launch --hosts h -m pkg.a ...",
    "python a.py --bind-cores on": "--bind-cores on: passed on to python; options of mcjax-launch go "
    "before PROGRAM: mcjax-launch --bind-cores on python ...",
    "-n 1 a.py -n 2": "",
    "-- a.py -n 2": "",
    "a.py -n x --num-processes {num_processes} -n": "",
    "a.py --log-dir x -- -n 2": "",
    "head -n 2": "",
}


def test_options_after_the_program_are_warned_of() -> None:
    said = {
        words: find_warnings(*read(*words.split()), {}, is_elsewhere=False)
        for words in AFTER_PROGRAM
    }
    assert {words: "; ".join(lines) for words, lines in said.items()} == AFTER_PROGRAM


# As AFTER_PROGRAM, where the ranks have ended with 2.
REFUSED = {
    "-n 2 a.py --timeout 5 --lr 1": "hint: --timeout 5: passed on to a.py; options of mcjax-launch "
    "go before PROGRAM: mcjax-launch -n 2 --timeout 5 a.py ...",
    "-n 2 -m pkg.a --status": "hint: --status: passed on to pkg.a; options of mcjax-launch go "
    "before PROGRAM: mcjax-launch -n 2 --status -m pkg.a ...",
    "a.py -n 2": "",  # has been said at the start
    "-n 2 -- a.py --timeout 5": "",
    "-n 2 a.py --lr 1": "",
}


def test_options_refused_by_a_program_are_recognized() -> None:
    ended = JobOutcome(2, "")
    said = {words: find_misplaced_options(*read(*words.split()), ended) for words in REFUSED}
    assert {words: "; ".join(lines) for words, lines in said.items()} == REFUSED


# A program's text, and when options after it are misplaced for certain.
READS = {
    "import jax\njax.distributed.initialize()\n": "at the start",
    "import sys\nrank = int(sys.argv[1])\n": "once it has failed",
    "import argparse\nparser.add_argument('--lr')\n": "never",
    "from my import main\nmain()\n": "once it has failed",
    "import jax.numpy as jnp, optax\nfrom flax import nnx\n": "at the start",
    "import jax\nfrom . import steps\n": "once it has failed",
    "import os, myflags\n": "once it has failed",
    "import os; import myflags\n": "once it has failed",
    "import jax\nprint(\n": "once it has failed",
}


@pytest.mark.parametrize("text", READS)
def test_options_after_a_program_without_arguments_are_warned_of(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    found = read("-n", "2", "--report", "a b.json", str(path), "-d", "2")
    line = f"-d 2: passed on to {path}; options of mcjax-launch go before PROGRAM: "
    line += f"mcjax-launch -n 2 --report 'a b.json' -d 2 {path} ..."
    when = READS[text]
    assert [*find_warnings(*found, {}, is_elsewhere=False)] == (
        [line] if when == "at the start" else []
    )
    early, refused = JobOutcome(1, "", failed_early=True), JobOutcome(2, "")
    assert [*find_misplaced_options(*found, early)] == [f"hint: {line}"] * (
        when == "once it has failed"
    )
    assert [*find_misplaced_options(*found, refused)] == [f"hint: {line}"] * (
        when != "at the start"
    )
    assert [*find_misplaced_options(*found, JobOutcome(1, ""))] == []


# Words of other launchers, and the option that does it, which the error names.
FAMILIAR = {
    "--nproc-per-node=4": "-n N",
    "--nproc_per_node 4": "-n N",
    "-H a,b": "--hosts",
    "-f h": "--hosts FILE",
    "-N 2": "--procs-per-host K",
    "--rdzv_backend c10d": "--coordinator HOST:PORT",
    "--ntasks-per-node=2": "--procs-per-host K",
    "--mem_per_cpu=4G": "--engine-option --mem_per_cpu=VALUE",
    "-p gpu": "--engine-option --partition=VALUE",
    "-J x": "--name NAME",
    "-help": "--help",
}


@pytest.mark.parametrize("words", FAMILIAR)
def test_options_of_other_launchers_get_advice(
    words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "train.py"]) == 2
    out, err = capfd.readouterr()
    first = words.split()[0].partition("=")[0]
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"mcjax-launch: {first}: no such option; ")
    assert FAMILIAR[words] in err


def test_advice_names_existing_options() -> None:
    known = {name for option in command.params for name in option.opts}
    for advice in usage_errors._ADVICE.values():
        text = advice.replace("--engine-option {}", "--engine-option")
        text = re.sub("--engine-option --(account|partition)", "--engine-option", text)
        assert set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text)) <= known, text


@pytest.mark.parametrize("variable", ["MCJAX_HOST_RANK", "JOB_COMPLETION_INDEX"])
def test_a_bad_value_from_the_environment_names_its_variable(
    variable: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "x")
    assert main(["true"]) == 2
    assert f": --host-rank (from {variable}): 'x' is not a whole number" in capfd.readouterr().err


@pytest.mark.parametrize("words", ["--log-dir logs", "--detach", "--timeout 5m", "--status"])
def test_any_option_after_a_program_that_reads_none_is_warned_of(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("import jax\n")
    assert main(["--dry-run", "a.py", *words.split()]) == 0
    assert (
        f"{words}: passed on to a.py; options of mcjax-launch go before" in capfd.readouterr().err
    )


@pytest.mark.parametrize(("word", "advice"), [("stop", "use --stop ID"), ("run", "leave it out")])
def test_word_of_other_launchers_commands_gets_a_hint(
    word: str, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    main(["--dry-run", word, "a.py"])
    expected = f"{word} is taken for PROGRAM, as mcjax-launch has no commands: {advice}"
    assert expected in capfd.readouterr().err


def test_hosts_file_of_a_similar_name_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("localhost\n")
    assert main(["--hosts", "host.txt", "true"]) == 2
    assert "--hosts host.txt: no such file; did you mean hosts.txt?" in capfd.readouterr().err
    assert main(["--dry-run", "--hosts", "localhost", "--via", "ssh", "true"]) == 0
    assert "localhost is this machine, reached without --via" in capfd.readouterr().err
