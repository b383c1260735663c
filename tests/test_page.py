"""The page that shows a record, in a real browser."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS, Jobs
from records import record_of

from mcjax_launch import report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
pytestmark = [pytest.mark.browser, needs_browser]

Browse = Callable[..., str]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Opens a page, after a script in it if one is given; what the document then holds."""

    def open_page(page: Path, part: str = "", script: str = "") -> str:
        if script:
            text = page.read_text().replace("</body>", f"<script>{script}</script></body>")
            page = tmp_path / "acting.html"
            page.write_text(text)
        command = f"{CHROMIUM} --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --window-size=1400,900 --enable-logging=stderr --virtual-time-budget=2000 --dump-dom".split()
        folder = f"--user-data-dir={tempfile.mkdtemp(dir=tmp_path)}"
        address = f"{page.as_uri()}#{part}"
        shown = subprocess.run([*command, folder, address], capture_output=True, timeout=100)
        assert shown.returncode == 0, shown.stderr.decode()
        complaints = [line for line in shown.stderr.splitlines() if b"CONSOLE" in line]
        assert not complaints, complaints
        return shown.stdout.decode()

    return open_page


def write(folder: Path, record: dict[str, Any]) -> Path:
    page = folder / "run.html"
    page.write_text(report.page(json.dumps(record)))
    return page


def rows(dom: str) -> list[int]:
    """The ranks in the timeline, in order."""
    return [int(rank) for rank in re.findall(r'<div class="row [^>]*data-rank="(\d+)"', dom)]


def row(dom: str, rank: int) -> str:
    found = re.search(
        rf'<div class="row [^>]*id="rank-{rank}".*?(?=<div class="row |<div id="legend)',
        dom,
        re.DOTALL,
    )
    assert found is not None
    return found[0]


def side(dom: str) -> str:
    """What is said of the selected rank, as text."""
    found = re.search(r"<aside.*?</aside>", dom, re.DOTALL)
    assert found is not None
    return unescape(re.sub("<[^>]*>", " ", found[0]))


def text_of(dom: str, name: str) -> str:
    found = re.search(rf'id="{name}"[^>]*>(.*?)</(h1|span|p|dl|pre|code)>', dom, re.DOTALL)
    assert found is not None
    return unescape(re.sub("<[^>]*>", " ", found[1])).strip()


@pytest.mark.jax
def test_a_failure_of_four_ranks(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    done = jobs.run(
        "-n", 4, "-d", 1, "--max-restarts", 1, "--report", page, PROGRAMS / "fail.py", "raise"
    )  # fmt: skip
    assert done.status == 1
    dom = browse(page)
    assert text_of(dom, "words") == "rank 1 failed: ValueError: bad batch"
    assert "fail.py:18 in fail" in text_of(dom, "where")
    assert rows(dom)[0] == 1
    assert sorted(rows(dom)) == [0, 1, 2, 3]
    assert "first cause" in row(dom, 1)
    assert 'class="held"' in row(dom, 1)
    assert all("first cause" not in row(dom, rank) for rank in (0, 2, 3))
    for rank in range(4):
        for phase in ("starting", "joining", "running"):
            assert f'class="{phase}"' in row(dom, rank)
    assert "first cause: rank 1" in dom  # on the axis
    assert 'raise ValueError("bad batch")' in side(dom)
    assert len(re.findall(r'<path [^>]*data-rank="\d"', dom)) == 8  # memory and CPU
    assert dom.count("attempt 1 (") == dom.count("attempt 2 (") == 1
    other = browse(page, "attempt=1&rank=3")
    assert "Rank 3" in side(other)
    assert "called initialize()" in side(other)
    assert re.search(r'aria-pressed="true"[^>]*>. attempt 1', other)


@pytest.mark.jax
def test_a_good_end(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    assert jobs.run("-n", 2, "-d", 2, "--report", page, PROGRAMS / "toy.py").status == 0
    dom = browse(page, "rank=1")
    assert "Succeeded" in text_of(dom, "badge")
    assert text_of(dom, "words") == "all 2 ranks ended with 0"
    assert rows(dom) == [0, 1]
    assert "first cause" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert "process 1 of 2: sum" in side(dom)


def test_what_ranks_print_is_text(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    evil = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
    program = 'echo "$1"; echo "$1" >&2; exit 3'
    assert jobs.run("--report", page, "bash", "-c", program, "bash", evil).status == 3
    dom = browse(page)
    assert "<title>taken" not in dom
    assert "<img" not in dom
    assert side(dom).count(evil) == 2


def test_256_ranks(tmp_path: Path, browse: Browse) -> None:
    page = write(tmp_path, record_of(256))
    dom = browse(page, "rank=7")
    assert sorted(rows(dom)) == list(range(256))
    assert rows(dom)[0] == 254
    assert "first cause" in row(dom, 254)
    assert ">254<" in row(dom, 254) and "h31" in row(dom, 254)
    assert "254 on h31" in text_of(dom, "words")
    assert "Rank 7" in side(dom)
    assert "rank 7 out" in side(dom) and "rank 7 err" in side(dom)
    assert dom.count('class="median"') == dom.count('class="max"') == 4  # line and words
    assert len(re.findall(r'<path [^>]*class="picked"', dom)) == 2
    assert "Rank 254" in side(browse(page))


ACTS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "a click on a row": (
        "document.querySelector('#rank-5').click()",
        lambda dom: "Rank 5" in side(dom) and 'aria-selected="true"' in row(dom, 5),
    ),
    "the arrow keys": (
        "document.querySelector('#rank-30').focus();"
        "for (const key of ['Home', 'ArrowDown', 'ArrowDown', 'ArrowUp'])"
        "  document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))",
        lambda dom: "Rank 0" in side(dom) and 'tabindex="0"' in row(dom, 0),
    ),
    "another order": (
        "const sort = document.querySelector('#sort'); sort.value = 'memory';"
        "sort.dispatchEvent(new Event('change'))",
        lambda dom: rows(dom) == list(range(31, -1, -1)),
    ),
    "the order of ranks": (
        "const sort = document.querySelector('#sort'); sort.value = 'rank';"
        "sort.dispatchEvent(new Event('change'))",
        lambda dom: rows(dom) == list(range(32)),
    ),
    "a filter by host": (
        "const find = document.querySelector('#find'); find.value = 'h2';"
        "find.dispatchEvent(new Event('input'))",
        lambda dom: rows(dom) == list(range(16, 24)),
    ),
    "a filter by ranks": (
        "const find = document.querySelector('#find'); find.value = '3-5, 9';"
        "find.dispatchEvent(new Event('input'))",
        lambda dom: rows(dom) == [3, 4, 5, 9],
    ),
    "only what failed": (
        "document.querySelector('.chip.stopped').click()",
        lambda dom: rows(dom) == [30],
    ),
    "a closer look at the end": (
        "[...document.querySelectorAll('#zoom button')].find(b => b.textContent === 'end').click()",
        lambda dom: 'class="starting"' not in row(dom, 3) and 'class="running"' in row(dom, 3),
    ),
    "the mouse over a row": (
        "document.querySelector('#rank-4 .track').dispatchEvent("
        "new MouseEvent('mousemove', {bubbles: true, clientX: 500, clientY: 500}))",
        lambda dom: "<td>process ended</td><td>1 min 41.125 s</td>" in dom,
    ),
    "the mouse over a chart": (
        "const plot = document.querySelector('.plot'), box = plot.getBoundingClientRect();"
        "plot.dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + box.width / 2}))",
        lambda dom: len(re.findall(r"<p>at 5[01]\.\d s</p>", dom)) == 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTS)
def test_what_a_reader_does(tmp_path: Path, browse: Browse, name: str) -> None:
    script, shows = ACTS[name]
    assert shows(browse(write(tmp_path, record_of(32)), script=script))


def test_a_record_without_ranks(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    taken = jobs.run("--coordinator", "10.9.8.7:1", "--report", page, "true")
    assert taken.status == 2
    dom = browse(page)
    assert "10.9.8.7" in text_of(dom, "words")
    assert "Not started" in text_of(dom, "badge")
    assert "No rank was started" in dom
