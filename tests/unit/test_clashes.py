"""Options that name one path, or a path in another option's folder."""

from pathlib import Path

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import BatchOptions, Options
from mcjax_launch.request.combinations import check, check_clashes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with files and links."""
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    Path("link").symlink_to("logs")
    Path("later.json").symlink_to("new.json")
    for name in ("hosts.txt", "train.py"):
        Path(name).write_text("x")


SAME = [
    {"report": "r.json", "profile": "./r.json"},
    {"report": "later.json", "log_dir": "new.json"},
    {"report": "link/r.json", "profile": "logs/r.json"},
    {"report": "{job_id}.json", "log_dir": "{job_id}.json"},
    {"report": "r-{num_processes}.json", "log_dir": "r-3.json", "num_processes": 3},
    {"report": "r.json", "log_dir": "r.json"},
    {"log_dir": "link", "profile": "logs"},
    {"report": "hosts.txt", "hosts": "hosts.txt"},
    {"report": "hosts.txt", "hosts": "hosts.txt", "check": True},
    {"report": "logs/../train.py", "chdir": "link/..", "program": ("train.py",)},
]


@pytest.mark.parametrize("given", SAME, ids=str)
def test_options_with_one_path_clash(given: dict[str, object]) -> None:
    with pytest.raises(LaunchError, match=r"^\S+ \S+ and \S+ \S+ name the same path: ") as raised:
        check_clashes(Options(**given))  # type: ignore[arg-type]
    assert raised.value.status == 2


IN_THE_WAY: dict[str, list[dict[str, object]]] = {
    "a file, not a directory": [
        {"report": "r.json", "log_dir": "r.json/logs"},
        {"report": "hosts.txt/r.json", "hosts": "hosts.txt"},
        {"profile": "train.py/x", "program": ("train.py",)},
    ],
    "writes a rank's output there": [
        {"report": "logs/0.out", "log_dir": "link"},
        {"report": "link/12.err", "log_dir": "logs"},
        {"profile": "logs/0.out", "log_dir": "logs"},
    ],
}


@pytest.mark.parametrize(
    ("words", "given"), [(w, g) for w, all_ in IN_THE_WAY.items() for g in all_], ids=str
)
def test_path_of_another_option_is_refused(words: str, given: dict[str, object]) -> None:
    with pytest.raises(LaunchError, match=words):
        check_clashes(Options(**given))  # type: ignore[arg-type]


APART = [
    {"report": "r.json", "log_dir": "logs", "profile": "p"},
    {"report": "logs/run.json", "log_dir": "logs"},
    {"report": "p/run.json", "log_dir": "p/logs", "profile": "p"},
    {"report": "logs/r.json", "log_dir": "logs/{job_id}"},
    {"report": "logs/1.out", "log_dir": "logs/{process_id}"},
    {"report": "r.json", "log_dir": ".", "program": ("train.py",)},
    {"report": "train", "program": ("train",)},  # a command, looked for in PATH
    {"report": "train.py", "program": ("train.py",), "chdir": "logs"},
    {"report": "r.json", "hosts": "hosts.txt"},
    {"report": "r.json", "check": True},
]


@pytest.mark.parametrize("given", APART, ids=str)
def test_compatible_paths_are_accepted(given: dict[str, object]) -> None:
    check_clashes(Options(**given))  # type: ignore[arg-type]


def test_deleted_working_directory_is_no_clash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others say so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    check_clashes(Options(report="r.json", log_dir="r.json"))


def test_debugger_ports_must_fit() -> None:
    given = Options(program=("a.py",), debugpy=65534, num_processes=2)
    check(given, {"debugpy"}, {})
    with pytest.raises(LaunchError, match="the last rank's port would be 65536"):
        check(given.replaced(num_processes=3), {"debugpy"}, {})


# What makes a difference to a check; of a batch script's options some say so, and some are ignored.
FOR_CHECK = (
    "num_processes python chdir env no_hook cpu_devices tpu_chips_per_process gpus_per_process "
    "cpu_transfers bind_cores hosts procs_per_host via slices coordinator mtls report color quiet "
    "verbose timeout start_timeout grace"
).split()


def test_check_accepts_only_its_options() -> None:
    def is_taken(name: str) -> bool:
        try:
            check(Options(check=True, hosts="a"), {"check", name}, {})
        except LaunchError as error:
            assert str(error) == f"--check cannot be combined with --{name.replace('_', '-')}"
            return False
        return True

    others = Options.declared.keys() - BatchOptions.declared.keys() - {"check"}
    assert {name for name in others if is_taken(name)} == set(FOR_CHECK)
