"""A PROGRAM that the kernel refuses: the reason and what to type instead, here and on hosts."""

import os
import shlex
from pathlib import Path

import pytest
from jobs import Jobs

TESTS = Path(__file__).parents[1]
_WINDOWS = "has Windows line ends, so its first line asks for {}; remove them with "


def _elf(machine: int) -> bytes:
    """A program for another kind of processor, as far as its header says."""
    program = bytearray(Path("/bin/sh").resolve().read_bytes())
    program[18:20] = machine.to_bytes(2, "little")
    return bytes(program)


# A file's name and content, the reason that is given, and the command that is advised.
REFUSED: dict[str, tuple[str, bytes, str, str]] = {
    "carriage return": (
        "a.sh",
        b"#!/bin/sh\r\necho ran\r\n",
        _WINDOWS.format(r"/bin/sh\r"),
        r"sed -i 's/\r$//' ./a.sh",
    ),
    "carriage return, env": (
        "a b",
        b"#!/usr/bin/env sh\r\necho ran\r\n",
        _WINDOWS.format(r"sh\r"),
        r"sed -i 's/\r$//' './a b'",
    ),
    "carriage return after an option": (
        "a.sh",
        b"#!/bin/sh -e\r\necho ran\r\n",
        _WINDOWS.format(r"-e\r"),
        r"sed -i 's/\r$//' ./a.sh",
    ),
    "no #!": ("a.sh", b"echo ran\n", "has no #! line; run it as ", "bash ./a.sh"),
    "no #!, Python": (
        "a",
        b"import os\nprint('ran')\n",
        "has no #! line; run it as ",
        "python ./a",
    ),
    "empty #!": (
        "a",
        b"#!\necho ran\n",
        "its first line, #!, names no interpreter; run it as ",
        "bash ./a",
    ),
    "no interpreter": (
        "a",
        b"#!/no/such/sh\necho ran\n",
        "its first line names /no/such/sh, and there is no such file; run it as ",
        "bash ./a",
    ),
    "a folder for an interpreter": (
        "a",
        b"#!/usr\necho ran\n",
        "its first line names /usr, which is not executable; run it as ",
        "bash ./a",
    ),
    "empty": ("a.sh", b"", "is empty", ""),
    "another processor": ("a", b"", "is built for s390x, and this host is {here}", ""),
    "cut short": ("a", b"\x7fELF\2\1\1\0", "is damaged or cut short", ""),
    "anything": ("a.out", b"\1\0\2", "has a format that this host cannot run", ""),
}


@pytest.fixture
def refused(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    """The program's name in the folder of the test, the reason, and the advice."""
    name, content, why, advice = REFUSED[request.param]
    path = tmp_path / name
    path.write_bytes(_elf(22) if "processor" in request.param else content)
    path.chmod(0o755)
    return f"./{name}", why.format(here=os.uname().machine), advice


@pytest.mark.parametrize("refused", REFUSED, indirect=True)
def test_unusable_program_is_explained_with_working_advice(
    jobs: Jobs, refused: tuple[str, str, str], tmp_path: Path
) -> None:
    """The command that is advised is then run, and with it the program works."""
    name, why, advice = refused
    ended = jobs.run("-n", 2, name, cwd=tmp_path)
    assert (ended.status, ended.stdout, ended.report) == (126, "", f"{name}: {why}{advice}")
    if advice.startswith("sed"):
        os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", f"cd {shlex.quote(str(tmp_path))} && {advice}"])
    if advice:
        words = [name] if advice.startswith("sed") else shlex.split(advice)
        ended = jobs.run("-n", 2, *words, cwd=tmp_path)
        assert sorted(ended.stdout.splitlines()) == ["[0] ran", "[1] ran"], ended.stderr


@pytest.mark.parametrize("refused", ["carriage return", "another processor"], indirect=True)
def test_unusable_program_on_a_host_is_explained(
    jobs: Jobs, refused: tuple[str, str, str], tmp_path: Path
) -> None:
    name, why, advice = refused
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").symlink_to(TESTS / "fake_ssh")
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    ended = jobs.run("--hosts", "h1", name, cwd=tmp_path, env=path)
    assert (ended.status, ended.report) == (126, f"host h1: {name}: {why}{advice}")


@pytest.mark.parametrize("refused", ["no #!", "carriage return"], indirect=True)
def test_a_command_in_path_is_advised_by_its_path(
    jobs: Jobs, refused: tuple[str, str, str], tmp_path: Path
) -> None:
    name, why, advice = refused
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = jobs.run(name[2:], env=path)
    advice = advice.replace("./", f"{tmp_path}/")
    assert (ended.status, ended.report) == (126, f"{name[2:]}: {why}{advice}")


@pytest.mark.parametrize("option", ["--python", "--wrap"])
@pytest.mark.parametrize("refused", ["carriage return"], indirect=True)
def test_unusable_file_of_an_option_is_explained(
    jobs: Jobs, refused: tuple[str, str, str], option: str, tmp_path: Path
) -> None:
    name, why, advice = refused
    ended = jobs.run(option, name, "true", cwd=tmp_path)
    assert (ended.status, ended.report) == (126, f"{option} {name}: {why}{advice}")
