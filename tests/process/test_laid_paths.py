"""Links, folders and files that another user has laid where the launcher is to write."""

import os
from pathlib import Path

import pytest
from jobs import Jobs

OTHER = 54321
pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files"),
]
OPTIONS = {
    "--log-dir": "{}",
    "--report": "{}/run.json",
}
LAID = "give another path"


def laid(path: Path, *, group: int = OTHER) -> Path:
    os.chown(path, OTHER, group, follow_symlinks=False)
    return path


@pytest.fixture
def everybodys(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(getattr(request, "param", 0o1777))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def check_refused(jobs: Jobs, home: Path, culprit: str, *arguments: object) -> None:
    ended = jobs.run(*arguments, "true")
    assert ended.status == 2, ended.stderr
    assert len(ended.report.splitlines()) == 1
    assert culprit in ended.report
    assert ended.report.endswith(LAID)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("option", OPTIONS)
def test_link_of_another_user_to_a_folder_is_refused(
    jobs: Jobs, everybodys: Path, home: Path, option: str
) -> None:
    link = everybodys / "logs"
    link.symlink_to(home)
    laid(link)
    said = f"{link} is a link of user {OTHER} in a folder that every user can write to"
    check_refused(jobs, home, said, option, OPTIONS[option].format(link / "below"))


@pytest.mark.parametrize("everybodys", [0o1777, 0o777], ids=["sticky", "not sticky"], indirect=True)
def test_folder_of_another_user_is_refused(jobs: Jobs, everybodys: Path, home: Path) -> None:
    folder = everybodys / "logs"
    folder.mkdir()
    laid(folder).chmod(0o1777)
    said = f"{folder} is a folder of user {OTHER} in"
    check_refused(jobs, home, said, "--log-dir", folder)
    assert list(folder.iterdir()) == []


def test_link_of_another_user_as_log_file_is_refused(
    jobs: Jobs, everybodys: Path, home: Path
) -> None:
    link = everybodys / "0.err"
    link.symlink_to(home / "precious")
    laid(link)
    check_refused(jobs, home, f"{link} is a link of user {OTHER}", "--log-dir", everybodys)


def test_log_file_of_another_user_is_refused(jobs: Jobs, everybodys: Path, home: Path) -> None:
    file = everybodys / "0.out"
    file.write_text("theirs")
    laid(file).chmod(0o666)
    check_refused(jobs, home, f"{file} is a file of user {OTHER}", "--log-dir", everybodys)
    assert file.read_text() == "theirs"


def test_link_of_another_user_as_report_is_refused(
    jobs: Jobs, everybodys: Path, home: Path
) -> None:
    link = everybodys / "run.json"
    link.symlink_to(home / "precious.json")
    laid(link)
    check_refused(jobs, home, f"{link} is a link", "--report", link)
    checked = jobs.run("--check", "--report", link)
    assert checked.status == 2
    assert checked.report.endswith(LAID)


def test_link_of_another_user_behind_an_own_link_is_refused(
    jobs: Jobs, everybodys: Path, home: Path, tmp_path: Path
) -> None:
    theirs, own = everybodys / "theirs", tmp_path / "own"
    theirs.symlink_to(home)
    laid(theirs)
    own.symlink_to("everybodys/../everybodys/theirs")
    check_refused(jobs, home, f"{theirs} is a link", "--log-dir", own)


def test_link_of_another_user_made_during_the_job_is_refused(
    jobs: Jobs, everybodys: Path, home: Path
) -> None:
    link = everybodys / "run.json"
    program = f"ln -s {home}/precious.json {link}; chown -h {OTHER} {link}"
    ended = jobs.run("--report", link, "bash", "-c", program)
    assert ended.status == 0
    assert ended.report.endswith(LAID)
    assert list(home.iterdir()) == []


# --- what stays allowed ---


def check_taken(jobs: Jobs, folder: Path) -> None:
    report = folder / "run.json"
    done = jobs.run("--log-dir", folder, "--report", report, "echo", "x")
    assert (done.status, done.out) == (0, b"[0] x\n")
    assert (folder / "0.out").read_text() == "x\n"
    assert report.exists()


def test_own_links_are_followed(jobs: Jobs, everybodys: Path, home: Path) -> None:
    (everybodys / "logs").symlink_to("../home/./new/..")
    (home / "new").mkdir()
    check_taken(jobs, everybodys / "logs" / "below")
    assert (home / "below" / "0.out").exists()


def test_link_in_a_folder_of_another_user_is_followed(
    jobs: Jobs, home: Path, tmp_path: Path
) -> None:
    """A colleague's home is that colleague's, and so is what leads on from there."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    laid(theirs)
    (theirs / "link").symlink_to(home)
    laid(theirs / "link")
    check_taken(jobs, theirs / "link")


def test_folder_of_a_group_may_hold_files_but_no_links(
    jobs: Jobs, everybodys: Path, home: Path
) -> None:
    folder = everybodys / "project"
    folder.mkdir()
    laid(folder, group=os.getegid()).chmod(0o2775)
    (folder / "0.out").write_text("old")
    laid(folder / "0.out", group=os.getegid()).chmod(0o664)
    check_taken(jobs, folder)
    (folder / "run.json").unlink()
    (folder / "run.json").symlink_to(home / "precious.json")
    laid(folder / "run.json", group=os.getegid())
    check_refused(jobs, home, "other users can write to", "--report", folder / "run.json")


def test_links_of_the_kernel_are_followed(jobs: Jobs, tmp_path: Path) -> None:
    for name, target in (("0.out", "/dev/stdout"), ("0.err", "/proc/self/fd/1")):
        (tmp_path / name).symlink_to(target)
    running = jobs.start("-q", "--log-dir", tmp_path, "echo", "x", stdout=os.open(tmp_path / "all", os.O_WRONLY | os.O_CREAT))  # fmt: skip
    assert running.finish().status == 0
    assert "x\n" in (tmp_path / "all").read_text()
