"""A PROGRAM that the kernel refuses: the reason and what to type instead, here and on hosts."""

import os
import shlex
import zipfile
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

_WINDOWS = "has Windows line ends, so its first line asks for {}; remove them with "


def _elf(machine: int) -> bytes:
    """A program for another kind of processor, as far as its header says."""
    program = bytearray(Path("/bin/sh").resolve().read_bytes())
    program[18:20] = machine.to_bytes(2, "little")
    return bytes(program)


# A program's content, the reason that is given, and the command that is advised.
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "carriage return": (
        b"#!/bin/sh\r\necho ran\r\n",
        _WINDOWS.format(r"/bin/sh\r"),
        r"sed -i 's/\r$//' './a b'",
    ),
    "carriage return, env": (
        b"#!/usr/bin/env sh\r\necho ran\r\n",
        _WINDOWS.format(r"sh\r"),
        r"sed -i 's/\r$//' './a b'",
    ),
    "no #!": (b"echo ran\n", "has no #! line; run it as ", "bash './a b'"),
    "no #!, Python": (
        b"import os\nprint('ran')\n",
        "has no #! line; run it as ",
        "python3 './a b'",
    ),
    "no interpreter": (
        b"#!/no/such/sh\necho ran\n",
        "its first line names /no/such/sh, and there is no such file; run it as ",
        "bash './a b'",
    ),
    "a folder for an interpreter": (
        b"#!/usr\necho ran\n",
        "its first line names /usr, which is not executable; run it as ",
        "bash './a b'",
    ),
    "zipapp": (b"", "is a zip archive; run it as ", "python3 './a b'"),
    "byte-order mark": (
        "\N{ZERO WIDTH NO-BREAK SPACE}#!/bin/sh\necho ran\n".encode(),
        "has a byte-order mark before its #!; remove it with ",
        r"sed -i '1s/^\xef\xbb\xbf//' './a b'",
    ),
    "empty": (b"", "is empty", ""),
    "another processor": (b"", "is built for s390x, and this host is {here}", ""),
    "cut short": (b"\x7fELF\2\1\1\0", "is damaged or cut short", ""),
    "anything": (b"\1\0\2", "has a format that this host cannot run", ""),
}


@pytest.fixture
def refused(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The reason why `a b` in the folder of the test is refused, and the advice."""
    content, why, advice = REFUSED[request.param]
    path = tmp_path / "a b"
    path.write_bytes(_elf(22) if "processor" in request.param else content)
    if request.param == "zipapp":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__main__.py", "print('ran')")
    path.chmod(0o755)
    return why.format(here=os.uname().machine), advice


@pytest.mark.parametrize("refused", REFUSED, indirect=True)
def test_unusable_program_is_explained_with_working_advice(
    jobs: Jobs, refused: tuple[str, str], tmp_path: Path
) -> None:
    """The command that is advised is then run, and with it the program works."""
    why, advice = refused
    ended = jobs.run("./a b", cwd=tmp_path)
    assert (ended.status, ended.stdout, ended.report) == (126, "", f"./a b: {why}{advice}")
    if advice.startswith("sed"):
        os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", f"cd {shlex.quote(str(tmp_path))} && {advice}"])
    if advice:
        words = ["./a b"] if advice.startswith("sed") else shlex.split(advice)
        ended = jobs.run(*words, cwd=tmp_path)
        assert ended.stdout == "[0] ran\n", ended.stderr


@pytest.mark.parametrize("refused", ["carriage return", "another processor"], indirect=True)
def test_unusable_program_on_a_host_is_explained(
    jobs: Jobs, refused: tuple[str, str], tmp_path: Path
) -> None:
    why, advice = refused
    ended = jobs.run("--hosts", "h1", "--via", FAKE_SSH, "./a b", cwd=tmp_path)
    assert (ended.status, ended.report) == (126, f"host h1: ./a b: {why}{advice}")


@pytest.mark.parametrize("refused", ["no #!"], indirect=True)
def test_a_command_in_path_is_advised_by_its_path(
    jobs: Jobs, refused: tuple[str, str], tmp_path: Path
) -> None:
    why, advice = refused
    ended = jobs.run("a b", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    advice = advice.replace("./", f"{tmp_path}/")
    assert (ended.status, ended.report) == (126, f"a b: {why}{advice}")


@pytest.mark.parametrize("refused", ["carriage return"], indirect=True)
def test_unusable_file_of_an_option_is_explained(
    jobs: Jobs, refused: tuple[str, str], tmp_path: Path
) -> None:
    why, advice = refused
    ended = jobs.run("--python", "./a b", "true", cwd=tmp_path)
    assert (ended.status, ended.report) == (126, f"--python ./a b: {why}{advice}")


def test_perl_ignores_a_carriage_return_after_its_options(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "a.pl"
    script.write_bytes(b'#!/usr/bin/perl -w\r\nprint "ran\\n";\r\n')
    script.chmod(0o755)
    assert jobs.run(script).stdout == "[0] ran\n"


def test_next_command_in_path_runs_if_the_first_cannot(jobs: Jobs, tmp_path: Path) -> None:
    """As in a shell."""
    for name, interpreter in (("first", "/no/such/sh"), ("second", "/bin/sh")):
        (tmp_path / name).mkdir()
        script = tmp_path / name / "tool"
        script.write_text(f"#!{interpreter}\necho {name}\n")
        script.chmod(0o755)
    path = f"{tmp_path}/first:{tmp_path}/second:{os.environ['PATH']}"
    assert jobs.run("tool", env={"PATH": path}).stdout == "[0] second\n"
