"""The pages show what is printed: each `$ mcjax-launch` block whose program is there is run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Jobs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Blocks that are not run here, and what they want or which test shows the same.
WANTS = {
    "--hosts hosts.txt -d 2 --sync toy.py toy.py": "hosts",
    "--hosts hosts.txt -d 2 toy.py": "hosts",
    "--hosts jh1,jh2,jh3 -d 2 --check": "hosts",
    "--hosts gpu[01-02] train.py": "hosts, and a terminal",
    "-n 4 --pdb train.py": "a terminal",
    "-n 2 --debugpy 5678 train.py": "an IDE",
    "-n 2 -d 1 -m pytest -s test_sum.py::test_one_fails": "the page's own tests",
    "-n 4 --collapse sh job.sh": "test_collapse.py",
    "-n 3 --preload slow --timeout 40s train.py": "test_preload.py",
    "-n 4 -d 2 --slices 2 hybrid.py": "test_slices.py",
}
BLOCK = re.compile(r"^    \$ mcjax-launch (.+)\n((?:    .*\n)*)", re.MULTILINE)
FILE = re.compile(r"^    \$ cat > (\S+) <<'END'\n((?:(?:    .*)?\n)*?)    END\n", re.MULTILINE)
# What is another number in each run.
VARIES = [
    (re.compile(r"\d+(\.\d+)? s\b"), "N s"),
    (re.compile(r"\(pid \d+\)"), "(pid N)"),
    (re.compile(r"\bhid \d+ lines?\b"), "hid N lines"),
    (re.compile(r"^( *jax/.*):\d+ in \w+"), r"\1:N in function"),
    (re.compile(r"\(\d+ more calls? in jax\)"), "(N more calls in jax)"),
]


def blocks() -> Iterator[tuple[Path, str, str]]:
    for page in PAGES:
        for command, shown in BLOCK.findall(page.read_text()):
            yield page, command, shown


RUN = [block for block in blocks() if block[1] not in WANTS]


def test_what_is_not_run_is_on_a_page() -> None:
    assert {command for _, command, _ in blocks()} >= WANTS.keys()


@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block[0].name}: {block[1]}")
def test_a_block_is_what_is_printed(
    jobs: Jobs, tmp_path: Path, block: tuple[Path, str, str]
) -> None:
    """Every line is printed, in whatever order ranks print theirs; the launcher's own in order."""
    page, command, shown = block
    for name, text in FILE.findall(page.read_text()):
        (tmp_path / name).write_text(re.sub(r"^    ", "", text, flags=re.MULTILINE))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    ended = jobs.run(*shlex.split(command), cwd=tmp_path)
    printed = [plain(line, tmp_path) for line in f"{ended.stdout}{ended.stderr}".splitlines()]
    expected = [plain(line[4:], tmp_path) for line in shown.splitlines() if line != "    ..."]
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
