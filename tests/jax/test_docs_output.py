"""The pages show what is printed: each block with a command whose program is there is run."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from pages import PAGES, ROOT, blocks, files

# Blocks that are not run here, and what they want or which test shows the same.
WANTS = {
    "mcjax-launch --detach -n 4 train.py": "tests/process/test_detach.py",
    "mcjax-launch --jobs": "tests/process/test_detach.py",
    "mcjax-launch --hosts hosts.txt train.py": "a terminal",
    "mcjax-launch -n 4 --pdb train.py": "a terminal",
    "mcjax-launch -n 2 --debugpy 5678 train.py": "an IDE",
}
# What is another number in each run.
VARIES = [
    (re.compile(r"\d+(\.\d+)? s\b"), "N s"),
    (re.compile(r"\(pid \d+\)"), "(pid N)"),
    (re.compile(r"\bhid \d+ lines?\b"), "hid N lines"),
    (re.compile(r"\d+(\.\d+){2,}"), "version"),
    (re.compile(r"^( *jax/.*):\d+ in \w+"), r"\1:N in function"),
    (re.compile(r"\(\d+ more calls? in jax\)"), "(N more calls in jax)"),
    (re.compile(r"; \d+ ranks,"), "; N ranks,"),
    (re.compile(r" \(warnings: load\)$"), ""),  # of --check, on a busy machine
    # There a rank may notice the end of another before it is killed itself.
    (re.compile(r"\d+ killed (\([^)]*\)), \d+ failed as a consequence at .*"), r"killed \1"),
]

SHOWN = [(page, command, lines) for page in PAGES for command, lines in blocks(page)]
RUN = [block for block in SHOWN if block[1] not in WANTS]


def test_commands_with_special_needs_are_on_a_page() -> None:
    assert {command for _, command, _ in SHOWN} >= WANTS.keys()


@pytest.mark.long
@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block[0].name}: {block[1]}")
def test_documented_output_is_what_is_printed(
    jobs: Jobs, tmp_path: Path, block: tuple[Path, str, str]
) -> None:
    """Every line is printed, in whatever order ranks print theirs; the launcher's own in order."""
    page, command, shown = block
    for name, text in files(page).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "ssh").symlink_to(ROOT / "tests" / "fake_ssh")
    path = f"{bin_}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    program, *words = ["bash", "-c", command] if "&" in command else shlex.split(command)
    env = {"PATH": path, "PYTHONPATH": str(ROOT)}
    ended = jobs.run(*words, launcher=[program], cwd=tmp_path, env=env, limit=100)
    printed = [plain(line, tmp_path) for line in f"{ended.stdout}{ended.stderr}".splitlines()]
    expected = [plain(line, tmp_path) for line in shown.splitlines() if line.strip() != "..."]
    assert [line for line in expected if line not in printed] == [], "\n".join(printed)
    ours = [line for line in expected if line.startswith("mcjax-launch: ")]
    assert [line for line in printed if line in ours] == ours


def plain(line: str, folder: Path) -> str:
    """A line without what is another in each run."""
    line = line.replace(str(folder), "/work").replace(str(ROOT), "/work")
    mark, rest = re.match(r"(mcjax-launch: )?(.*)", line).groups()  # type: ignore[union-attr]
    for pattern, text in VARIES:
        rest = pattern.sub(text, rest)
    return f"{mark or ''}{rest}"
