"""The page that shows a record, in a real browser."""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM
from jobs import PROGRAMS, Jobs
from records import record_of, stalled, succeeded

from mcjax_launch.features.report import report_file as write_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome"),
]


@dataclass(frozen=True)
class View:
    """A look at a page.

    Args:
        page: a file, or the record of which one is made.
        part: what follows # in its address.
        script: what is done there, with the page's `document` and `view`, its window.
        width: the window's, 390 for a phone's.

    """

    page: Path | dict[str, Any]
    part: str = ""
    script: str = ""
    width: int = 1400


Browse = Callable[..., Sequence[str]]
# Opens each page in a frame of its own; then it does what is to be done there, and keeps what each
# page holds. Of an expression in a script the value becomes the page's title.
OUTER = """<!doctype html><body>%s<script>
addEventListener("load", () => setTimeout(() => {
  const frames = [...document.querySelectorAll("iframe")], scripts = %s;
  frames.forEach((frame, at) => new Function("document", "view", scripts[at])
    (frame.contentDocument, frame.contentWindow));
  setTimeout(() => {
    const doms = frames.map(frame => frame.contentDocument.documentElement.outerHTML);
    document.body.append(Object.assign(document.createElement("pre"),
      {id: "doms", textContent: JSON.stringify(doms)}));
  }, 100);
}, 100));
</script></body>"""


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Opens pages, all in one browser; what the documents then hold."""

    def open_pages(*views: View) -> list[str]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        frames = []
        for number, view in enumerate(views):
            page = view.page
            if not isinstance(page, Path):
                page = folder / f"{number}.html"
                page.write_text(write_report.make_page(json.dumps(view.page)))
            size = f"width:{view.width}px;height:900px;border:0"
            frames.append(f'<iframe style="{size}" src="{page.as_uri()}#{view.part}"></iframe>')
        outer = folder / "outer.html"
        outer.write_text(OUTER % ("".join(frames), json.dumps([view.script for view in views])))
        command = f"{CHROMIUM} --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --window-size=1400,900 --allow-file-access-from-files --enable-logging=stderr --virtual-time-budget=2000 --dump-dom".split()
        command += [f"--user-data-dir={folder / 'browser'}", outer.as_uri()]
        shown = subprocess.run(command, capture_output=True, timeout=250)
        assert shown.returncode == 0, shown.stderr.decode()
        complaints = [line for line in shown.stderr.splitlines() if b"CONSOLE" in line]
        assert not complaints, complaints
        held = re.search(r'<pre id="doms">(.*?)</pre>', shown.stdout.decode(), re.DOTALL)
        assert held is not None
        return list(json.loads(unescape(held[1])))

    return open_pages


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
def test_page_shows_a_failed_job(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    options = ["-n", 2, "-d", 1, "--max-restarts", 1, "--report", page]
    assert jobs.run(*options, PROGRAMS / "fail.py", "late").status == 1
    dom, other = browse(View(page), View(page, "attempt=1&rank=0"))
    assert text_of(dom, "words") == "rank 1 failed: ValueError: bad batch"
    assert "fail.py:22 in fail" in text_of(dom, "where")
    assert rows(dom) == [1, 0]
    assert "root cause" in row(dom, 1)
    assert 'class="held"' in row(dom, 1)
    assert "root cause" not in row(dom, 0)
    for rank in range(2):
        for phase in ("starting", "joining", "running"):
            assert f'class="{phase}"' in row(dom, rank)
    assert "root cause: rank 1" in dom  # on the axis
    assert 'raise ValueError("bad batch")' in side(dom)
    assert len(re.findall(r'<path [^>]*data-rank="\d"', dom)) == 4  # memory and CPU
    assert dom.count("attempt 1 (") == dom.count("attempt 2 (") == 1
    assert "Rank 0" in side(other)
    assert "called initialize()" in side(other)
    assert re.search(r'aria-pressed="true"[^>]*>. attempt 1', other)


def test_page_escapes_rank_output(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    evil = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
    program = 'echo "$1"; echo "$1" >&2; exit 3'
    assert jobs.run("--report", page, "bash", "-c", program, "bash", evil).status == 3
    [dom] = browse(View(page))
    assert "<title>taken" not in dom
    assert "<img" not in dom
    assert side(dom).count(evil) == 2


def test_page_shows_256_ranks(browse: Browse) -> None:
    made = record_of(256)
    dom, first = browse(View(made, "rank=7"), View(made))
    assert sorted(rows(dom)) == list(range(256))
    assert rows(dom)[0] == 254
    assert "root cause" in row(dom, 254)
    assert ">254<" in row(dom, 254) and "h31" in row(dom, 254)
    assert "254 on h31" in text_of(dom, "words")
    assert "Rank 7" in side(dom)
    assert "rank 7 out" in side(dom) and "rank 7 err" in side(dom)
    assert dom.count('class="median"') == dom.count('class="max"') == 4  # line and words
    assert len(re.findall(r'<path [^>]*class="picked"', dom)) == 2
    assert "Rank 254" in side(first)


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


def test_page_reacts_to_its_reader(browse: Browse) -> None:
    made = record_of(32)
    doms = browse(*(View(made, script=script) for script, _ in ACTS.values()))
    shown = zip(doms, ACTS.items(), strict=True)
    assert [name for dom, (name, (_, shows)) in shown if not shows(dom)] == []


TRACEBACK = [
    "Traceback (most recent call last):",
    *(f'  File "train.py", line {line}, in step' for line in range(30)),
    "    a_call(with_an_argument)",
    "           ^^^^^^^^^^^^^^^^",
    "ValueError: bad <batch>",
]


TRACED = [
    (["before", *TRACEBACK], ["before", "(the traceback above)"]),
    ([*TRACEBACK, "", "after"], ["(the traceback above)", "", "after"]),
    ([*TRACEBACK[-20:], "after"], ["(the end of the traceback above)", "after"]),
    (["other", TRACEBACK[-1]], ["other", TRACEBACK[-1]]),
    ([], None),
]


def test_a_traceback_is_shown_once(browse: Browse) -> None:
    views = []
    for stderr, _ in TRACED:
        made = record_of(4)
        failed = made["attempts"][0]["ranks"][2]
        failed["exception"]["traceback"] = TRACEBACK
        failed["last_lines"]["stderr"] = stderr
        views.append(View(made))
    for dom, (_, shown) in zip(browse(*views), TRACED, strict=True):
        assert block(dom, "Traceback") == TRACEBACK
        assert block(dom, "Last lines of stderr") == shown


def block(dom: str, name: str) -> list[str] | None:
    """The lines under a heading beside the timeline."""
    found = re.search(rf'<pre [^>]*aria-label="{name}">(.*?)</pre>', dom, re.DOTALL)
    return found and unescape(re.sub("<[^>]*>", "", found[1])).removesuffix("\n").split("\n")


STATUSES: list[tuple[int, dict[str, Any] | None, str]] = [
    (0, {}, "success"),
    (1, {}, "failed"),
    (1, {"signal": "SIGKILL"}, "failed"),  # held up in its exit
    (2, {"signal": None}, "the rank's own"),
    (139, {"signal": "SIGSEGV"}, "died of SIGSEGV"),
    (143, {"signal": "SIGTERM"}, "died of SIGTERM"),
    (2, None, "usage error"),
    (124, None, "a timeout"),
    (125, None, "an internal error"),
    (126, None, "not executable"),
    (127, None, "not found"),
    (129, None, "stopped by SIGHUP"),
    (130, None, "stopped by SIGINT"),
    (137, None, "died of SIGKILL"),
    (141, None, "the reader of stdout is gone"),
    (143, None, "stopped by SIGTERM"),
    (255, None, "a host lost or unreachable"),
]


def test_page_explains_the_exit_status(browse: Browse) -> None:
    views = []
    for status, of_rank, _ in STATUSES:
        made = record_of(4) if status and of_rank is not None else stalled(4, [])
        made["exit_status"] = made["attempts"][0]["exit_status"] = status
        made["attempts"][0]["ranks"][2].update(of_rank or {})
        views.append(View(made))
    for dom, (status, _, words) in zip(browse(*views), STATUSES, strict=True):
        assert f" {status}: {words} " in text_of(dom, "facts")


COMMON = ["    jax/_src/x.py:1 in f", "  > /home/me/train.py:23 in <module>"]
APART = ["    socket.py:7 in read", "  > /home/me/load.py:8 in next"]


STOOD: list[tuple[list[str], list[int]]] = [
    (["ranks 0-2,4-7:", *COMMON, "rank 3 (pid 1003):", *APART], [3]),
    (["ranks 0,2-4,6,7 on h0:", *COMMON, "ranks 1,5 on h0, h1:", *APART], [1, 5]),
    (["ranks 0-2,4-7:", *COMMON, "rank 3 on h0 (pid 9): no Python to ask; sleeps"], [3]),
    (["ranks 0-7:", *COMMON, "another thread of rank 3 (pid 1003):", *APART], []),
    (["ranks 0-7:", *COMMON, "rank 3 (pid 2003): no Python to ask; a child"], []),
    (["ranks 0-3:", *COMMON, "ranks 4-7:", *APART], []),
    (["ranks 0-5:", *COMMON, "rank 6 (pid 1006):", *APART, "rank 7 (pid 1007):"], []),
]


def test_page_shows_positions_of_ranks(browse: Browse) -> None:
    first = "stacks of 8 ranks, innermost call first:"
    doms = browse(*(View(stalled(8, [first, *lines])) for lines, _ in STOOD))
    for dom, (lines, apart) in zip(doms, STOOD, strict=True):
        stacks = [first, *lines]
        stood = re.search(r'<details id="stood"[^>]*>.*?</details>', dom, re.DOTALL)
        assert stood is not None
        assert 'open=""' in stood[0].partition(">")[0]
        assert "Where the ranks stood" in stood[0]
        assert block(dom, "Stacks of the ranks") == stacks
        mine = re.findall(r'<span class="mine">(.*?)</span>', stood[0])
        assert [unescape(line) for line in mine] == [line for line in stacks if "  > " in line]
        assert [rank for rank in range(8) if "different stack" in row(dom, rank)] == apart
        assert rows(dom)[: len(apart)] == apart
        assert f"Rank {apart[0] if apart else 0} " in side(dom)
        assert ("different stack" in side(dom)) == bool(apart)


def test_page_of_a_success_shows_differing_programs(browse: Browse) -> None:
    lines = ["program #3: rank 0 <a> · ranks 1-3 <b>", "the code in it differs"]
    dom, same = browse(View(succeeded(4, lines)), View(succeeded(4, [])))
    assert text_of(dom, "badge").endswith("Succeeded, but the ranks ran different programs")
    assert '<header id="head" class="card warn"' in dom
    assert re.search(r'<details id="diverged"[^>]*open=""', dom)
    assert block(dom, "Different programs") == lines
    assert text_of(same, "badge").endswith("Succeeded")
    assert '<header id="head" class="card good"' in same
    for hidden in ("diverged", "stood"):
        assert re.search(rf'<details id="{hidden}"[^>]* hidden=""', same)


ON_A_PHONE = {
    "nothing is wider than the screen": """
        document.documentElement.scrollWidth <= 390
          && [...document.querySelectorAll('body *')].every(element =>
            element.closest('.track, svg') || element.getBoundingClientRect().right <= 390)""",
    "no words are cut": """
        [...document.querySelectorAll('.row .end, .row .name, .pill, #legend > span, #facts dd,'
          + '.read div, .wait, .said, h1')].every(element => element.scrollWidth <= element.clientWidth + 1
            || view.getComputedStyle(element).display === 'inline')""",
    "lines wrap": """
        [...document.querySelectorAll('pre')].every(element =>
          view.getComputedStyle(element).whiteSpace === 'pre-wrap'
            && element.scrollWidth <= element.clientWidth)""",
    "a timeline has the whole width": """
        [...document.querySelectorAll('.row .track')].every(element =>
          element.offsetWidth > 0.8 * document.querySelector('#main').offsetWidth)""",
}


def test_page_fits_a_phone(browse: Browse) -> None:
    rules = ", ".join(f"{json.dumps(name)}: {rule.strip()}" for name, rule in ON_A_PHONE.items())
    broken = f"Object.entries({{{rules}}}).flatMap(([name, holds]) => holds ? [] : name).join()"
    views = []
    for count in (4, 64):
        made = waited(count)
        ranks = made["attempts"][0]["ranks"]
        ranks[-2]["exception"]["traceback"] = ["x" * 300, *TRACEBACK]
        ranks[-1].update(signal=None, exit_status=0)
        made["attempts"][0]["divergence_sides"] = [list(range(count - 1)), [count - 1]]
        views.append(View(made, "", f"document.title = {broken}", width=390))
    assert [re.findall("<title>(.*?)</title>", dom) for dom in browse(*views)] == [[""], [""]]


def waited(count: int) -> dict[str, Any]:
    """A record in which all ranks waited for the last one, and then for one that never came."""
    made = record_of(count)
    others = range(count - 1)
    made["attempts"][0]["waits"] = [
        {
            "place": "jit(step)",
            "where": "train.py:30",
            "arrived": [*([n, 10.0] for n in others), [count - 1, 40.0]],
            "late": [count - 1],
            "until_s": 40.0,
        },
        {
            "place": "jit(evaluate)",
            "where": None,
            "arrived": [[n, 60.0] for n in range(1, count)],
            "late": [0],
            "until_s": 100.0,
        },
    ]
    return made


def test_page_shows_past_waits(browse: Browse) -> None:
    click = "document.querySelectorAll('.wait')[1].click()"
    dom, picked = browse(View(waited(4), "rank=3"), View(waited(4), script=click))
    assert said_of_waits(dom) == [
        "ranks 1-3 waited 40.0 s for rank 0 in jit(evaluate), which has not come",
        "ranks 0-2 waited up to 30.0 s for rank 3 in jit(step) at train.py:30",
    ]
    assert "ranks 0-2 waited 30.0 s for it in jit(step)" in side(dom)
    assert "waited 40.0 s for rank 0 in jit(evaluate)" in side(dom)
    assert [row(dom, rank).count('class="waiting"') for rank in range(4)] == [1, 2, 2, 1]
    assert "waits for another rank" in dom
    assert "Rank 3 " in side(picked)
    assert ['class="waiting picked"' in row(picked, rank) for rank in range(4)] == [True] * 3 + [
        False
    ]
    assert ['class="awaited"' in row(picked, rank) for rank in range(4)] == [False] * 3 + [True]


def said_of_waits(dom: str) -> list[str]:
    found = re.findall(r'<button class="wait".*?</button>', dom, re.DOTALL)
    return [unescape(re.sub("<[^>]*>", "", markup)) for markup in found]


def test_page_shows_a_hangs_waits(browse: Browse) -> None:
    """The record says who waits, also where most ranks do not."""
    made = stalled(8, ["ranks 0-2,4-7:", *APART, "rank 3 (pid 1003):", *COMMON])
    wait = {"place": "", "where": "train.py:23", "arrived": [[3, 40.0]], "until_s": 100.0}
    made["attempts"][0]["waits"] = [{**wait, "late": [0, 1, 2, 4, 5, 6, 7]}]
    [dom] = browse(View(made))
    expected = "rank 3 waited 1 min 00 s for ranks 0-2,4-7 at train.py:23, which have not come"
    assert said_of_waits(dom) == [expected]
    assert "waited 1 min 00 s for ranks 0-2,4-7 at train.py:23" in side(dom)
    assert text_of(dom, "words").endswith("; rank 3 waited 1 min 00 s for ranks 0-2,4-7")
    assert ['class="waiting"' in row(dom, rank) for rank in (2, 3, 4)] == [False, True, False]


def test_page_shows_versions(browse: Browse) -> None:
    made = record_of(4)
    for rank in made["attempts"][0]["ranks"]:
        rank.update(jax="0.10.2", jaxlib="0.10.1", python="3.11.7")
    other = record_of(4)
    for rank in other["attempts"][0]["ranks"]:
        rank["jax"] = "0.6.0" if rank["rank"] == 3 else "0.10.2"
    dom, mixed = browse(View(made), View(other))
    assert re.search(r"jax +0\.10\.2 +Python +3\.11\.7", text_of(dom, "facts"))
    assert "jaxlib 0.10.1" in side(dom)
    assert "0.10.2 (ranks 0-2), 0.6.0 (rank 3)" in text_of(mixed, "facts")


LINKS = {
    "/runs/1/logs": "./logs/2.err",
    "/runs/1": "./2.err",
    "/runs/my logs#1": "../my%20logs%231/2.err",
    "/var/log": "../../var/log/2.err",
}


def test_page_links_to_log_files(browse: Browse) -> None:
    views = []
    for folder in LINKS:
        made = record_of(4)
        made["attempts"][0]["log_dir"] = folder
        paths = {"stdout": f"{folder}/2.out", "stderr": f"{folder}/2.err"}
        made["attempts"][0]["ranks"][2]["log_files"] = paths
        views.append(View(made))
    for dom, (folder, href) in zip(browse(*views), LINKS.items(), strict=True):
        assert f'<a href="{href}" target="_blank" title="{folder}/2.err">log file</a>' in dom
        assert f'">{folder}</a>' in dom


def test_page_searches_last_lines(browse: Browse) -> None:
    made = record_of(4)
    lines = [f"step {n} loss {n / 8}" for n in range(500)]
    made["attempts"][0]["ranks"][2]["last_lines"] = {"stdout": lines, "stderr": ["Done"]}
    grep, find = (
        f"const field = document.querySelector('#{field}'); field.value = '{text}';"
        "field.dispatchEvent(new Event('input'))"
        for field, text in (("grep", "STEP 49"), ("find", "61.5"))
    )
    dom, grepped, filtered = browse(View(made), View(made, "", grep), View(made, "", find))
    assert block(dom, "Last lines of stdout") == lines
    found = [line for line in lines if line.startswith("step 49")]
    assert block(grepped, "Last lines of stdout") == found
    assert f"Last lines of stdout: {len(found)} of 500" in grepped
    assert grepped.count("<mark>step 49</mark>") == len(found) == 11
    assert "Last lines of stderr: 0 of 1" in grepped
    assert rows(filtered) == [2]  # which printed that


def test_times_are_the_readers_own(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    made, click = record_of(4), "document.querySelector('#facts button').click()"
    own, universal = browse(View(made), View(made, script=click))
    assert "2027-01-15 13:30:00 UTC+5:30" in text_of(own, "facts")
    assert "13:31:41" in side(own)
    assert "2027-01-15 08:00:00 UTC" in text_of(universal, "facts")
    assert "08:01:41" in side(universal)
    assert "the times of day are UTC." in universal


def test_a_different_program_is_marked(browse: Browse) -> None:
    made = succeeded(4, ["program #3: ranks 0-1,3 <a> · rank 2 <b>"])
    made["attempts"][0]["divergence_sides"] = [[0, 1, 3], [2]]
    [dom] = browse(View(made))
    assert [rank for rank in range(4) if "different program" in row(dom, rank)] == [2]
    assert rows(dom)[0] == 2
    assert "Rank 2 " in side(dom)


def test_page_shows_what_a_rank_used_of_its_gpu(browse: Browse) -> None:
    made = record_of(2)
    made["attempts"][0]["ranks"][0].update(
        gpu_peak_mib=60 << 10,
        gpu_samples=[[1.0, 512, 0], [50.0, 60 << 10, None], [90.0, 1024, 98]],
        gpu_use=[
            {"number": 3, "name": "NVIDIA H100", "rank_mib": 1024, "used_mib": 2048}
            | {"limit_mib": 81920, "busy_percent": 97.6}
        ],
    )
    dom, without = browse(View(made, part="rank=0"), View(record_of(2)))
    assert 'data-use="gpuMemory"' in dom and 'data-use="gpuBusy"' in dom
    assert 'data-use="gpu' not in without
    words = " ".join(side(dom).split())
    assert "GPU 3 NVIDIA H100 1.0 GiB of 80.0 GiB, 98 %" in words
    assert "peak GPU memory 60.0 GiB" in words


def test_page_shows_a_job_without_ranks(jobs: Jobs, tmp_path: Path, browse: Browse) -> None:
    page = tmp_path / "run.html"
    taken = jobs.run("--coordinator", "10.9.8.7:1", "--report", page, "true")
    assert taken.status == 2
    [dom] = browse(View(page))
    assert "10.9.8.7" in text_of(dom, "words")
    assert "Not started" in text_of(dom, "badge")
    assert "No rank was started" in dom
