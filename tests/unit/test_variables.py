"""-x and --env-file: which variables ranks get, and what is wrong with them."""

from pathlib import Path

import pytest

from mcjax_launch.cli.command import main
from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options
from mcjax_launch.request.variables import collect_variables, parse, parse_variable

# The text of a file, and the variables that it sets.
VALID = {
    "": {},
    "\n  # all\n\t\n": {},
    "A=1\nB=2": {"A": "1", "B": "2"},
    "A=1\r\nB='x'\r\n": {"A": "1", "B": "x"},
    "export A=1\n  export\tB = 2  \n": {"A": "1", "B": "2"},
    "A=\nB=''\nC=\"\"\nD= # none\n": {"A": "", "B": "", "C": "", "D": ""},
    "A=x y # z\nB=x#y\nC=#x\n": {"A": "x y", "B": "x#y", "C": "#x"},
    "A=it's\nB=$x\\n\nC=a=b\n": {"A": "it's", "B": "$x\\n", "C": "a=b"},
    "A='x # y' # z\nB=' x '\nC='${x}\\n\"'\n": {"A": "x # y", "B": " x ", "C": '${x}\\n"'},
    'A="a\\tb\\nc\\rd" # x\nB="\\"\\\\\\$\\{x}\\q"\n': {"A": "a\tb\nc\rd", "B": '"\\$\\{x}\\q'},
    "A='-----BEGIN\nx=1\n'\nB=\"y\nz\"\n": {"A": "-----BEGIN\nx=1\n", "B": "y\nz"},
    "A=1\nA=2\n": {"A": "2"},
    "A=é\udce4\n": {"A": "é\udce4"},
}
NAME = "write NAME=VALUE, with a name of letters, digits and _"
FILLED_IN = "${...} is not filled in: put a value that has it into single quotes, or pass it by -x"
# The text of a file, the number of its wrong line, and what is said of it.
INVALID = {
    "A=1\nsecret\n": (2, NAME),
    "A=1\n\nMY-secret=1\n": (3, NAME),
    "1A=secret": (1, NAME),
    "é=secret": (1, NAME),
    "=secret": (1, NAME),
    "export\n": (1, NAME),
    "A='1\n2'\nB='secret\n": (3, "the quote is not closed"),
    'A=1\nB="secret\\"\n': (2, "the quote is not closed"),
    "A='x' secret\n": (1, "text after the closing quote: quote the whole value"),
    "A=${secret}\n": (1, FILLED_IN),
    'A=1\nB="x\n${secret}"\n': (2, FILLED_IN),
    "A=secret\0\n": (1, "a variable cannot hold a NUL character"),
}


@pytest.mark.parametrize("text", VALID)
def test_file_of_variables_is_read(text: str) -> None:
    assert dict(parse(text, "f")) == VALID[text]


@pytest.mark.parametrize("text", INVALID)
def test_wrong_line_is_named_and_not_quoted(text: str) -> None:
    number, why = INVALID[text]
    with pytest.raises(LaunchError) as caught:
        list(parse(text, ".env"))
    assert str(caught.value) == f".env:{number}: {why}"


def collect(*env: str, files: tuple[str, ...] = (), here: str = "") -> dict[str, str]:
    environ = dict.fromkeys(here.split(), "here")
    options = Options(env=env, env_file=files, verbose=True)
    return dict(collect_variables(options, environ, lambda line: None))


def test_variables_are_parsed() -> None:
    assert parse_variable("A=b=c", {}) == ("A", "b=c")
    assert parse_variable("A=", {"A": "x"}) == ("A", "")
    assert parse_variable("A", {"A": "x"}) == ("A", "x")
    assert parse_variable("A=*[x]", {}) == ("A", "*[x]")


def test_pattern_passes_on_what_matches_here() -> None:
    there = "NCCL_DEBUG NCCL_IB NCCL nccl_x XNCCL_DEBUG A1 A2 A3"
    assert collect("NCCL_*", here=there) == {"NCCL_DEBUG": "here", "NCCL_IB": "here"}
    assert collect("A[1-2]", "N?CL", here=there) == {"A1": "here", "A2": "here", "NCCL": "here"}
    assert collect("NCCL_*", "NCCL_IB=0", here=there) == {"NCCL_DEBUG": "here", "NCCL_IB": "0"}
    assert collect("TPU_*", here=there) == {}


def test_pattern_passes_on_no_settings_of_the_launcher() -> None:
    there = "JAX_PROCESS_ID JAX_NUM_PROCESSES MCJAX_HOSTS _MCJAX_LAUNCH_CLIENT BASH_FUNC_M%% MC"
    assert collect("*M*", here=there) == {"MC": "here"}


WRONG = {
    "*": "-x *: write a pattern with part of a name, such as 'NCCL_*'",
    "?[!0]": "-x ?[!0]: write a pattern with part of a name, such as 'NCCL_*'",
    "A.*": "-x A.*: write a pattern with part of a name, such as 'NCCL_*'",
    "A*=secret": "-x A*=...: a pattern takes the values that are set here: -x 'A*'",
    "A-B=secret": "-x A-B=...: 'A-B' is not a valid variable name",
    "A": "-x A: not set here; write -x A=VALUE",
    "JAX_PROCESS_ID=9": "-x JAX_PROCESS_ID=...: the launcher sets it in each rank",
    "JAX_NUM_PROCESSES": "-x JAX_NUM_PROCESSES: the launcher sets it in each rank: use -n",
    "JAX_COORDINATOR_ADDRESS=a:1": "-x JAX_COORDINATOR_ADDRESS=...: the launcher sets it in each rank: use --coordinator",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_variable_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        collect(text)
    assert str(caught.value) == WRONG[text]


def test_file_sets_no_place_of_a_rank(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("A=1\nJAX_PROCESS_ID=3\n")
    with pytest.raises(
        LaunchError, match=r"env: JAX_PROCESS_ID: the launcher sets it in each rank"
    ):
        collect(files=(str(tmp_path / "env"),))


def test_option_wins_over_files_and_later_files_over_earlier(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("first", "second")]
    for name, text in zip(names, ("A=1\nB=1\nC=1\n", "B=2\nC=2\n"), strict=True):
        Path(name).write_text(text)
    assert collect("C=3", files=tuple(names)) == {"A": "1", "B": "2", "C": "3"}


def test_names_are_printed_and_values_are_not(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("KEY=secret\n")
    options = Options(env=("T*", "X=secret"), env_file=(str(tmp_path / "f"),), verbose=True)
    said: list[str] = []
    collect_variables(options, {"TOKEN": "secret"}, said.append)
    assert said == [f"--env-file {tmp_path}/f: KEY", "-x T*: TOKEN"]
    collect_variables(options.copy_with(verbose=False), {}, pytest.fail)


def test_missing_file_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--env-file", "nowhere.env", "--dry-run", "true"]) == 2
    assert capfd.readouterr().err == (
        "mcjax-launch: --env-file nowhere.env: No such file or directory\n"
    )


def test_wrong_line_is_refused_with_its_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.env").write_text("A=1\nB: 2\n")
    assert main(["--env-file", f"{tmp_path}/job.env", "--dry-run", "true"]) == 2
    assert capfd.readouterr().err.startswith(f"mcjax-launch: --env-file {tmp_path}/job.env:2: ")


def test_pattern_that_nothing_matches_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "-x", "XYZZY_*", "--dry-run", "true"]) == 0
    line = "mcjax-launch: -x XYZZY_*: no variable that is set here matches, so none is passed on\n"
    assert capfd.readouterr().err == line
    monkeypatch.setenv("XYZZY_A", "1")
    assert main(["-q", "-x", "XYZZY_*", "--dry-run", "true"]) == 0
    out, err = capfd.readouterr()
    assert "export XYZZY_A=1\n" in out and not err
