"""Requests to hosts to collect facts about their ranks, and the folder with them (--black-box)."""

import html
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.features.black_box.messages import Attend, Collect, Evidence
from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.wire import own_paths

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.summary import Summary
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.kernel.launcher.part import JobLauncher
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.wire.frames import Raw
    from mcjax_launch.kernel.wire.messages import ToAgent, ToLauncher

_WHAT = {
    "processes.txt": "the ranks, their child processes, and where each thread is in the kernel",
    "stacks.txt": "Python stacks",
    "dmesg.txt": "the kernel's log: out of memory, GPUs",
    "nvidia-smi.txt": "the GPUs",
    "ncclras.txt": "NCCL's communicators",
}


class BlackBox(LauncherPart):
    """Part that requests a collection once when the job seems to hang, and once when it fails."""

    ending_s = 30.0

    def __init__(self, launcher: "JobLauncher") -> None:
        super().__init__(launcher)
        assert launcher.job.black_box is not None
        again = f"restart{launcher.restart}" if launcher.restart else ""
        self._folder = os.path.join(launcher.job.black_box, again)
        self._files: dict[str, str] = {}  # path below the folder -> what it is
        self._is_asked = self._is_over = False

    def make_orders(self, ranks: Sequence["Rank"], plan: "Plan") -> Iterable["ToAgent"]:
        """Return the order to collect facts when ranks are ended, even without a request."""
        return (Attend(),)

    def on_hang(self) -> None:
        """Request a collection when the job seems to hang; do nothing the next time."""
        if not self._is_asked:
            self._is_asked = True
            self.launcher.pool.send_all(Collect(goes_on=True))

    def on_stop(self, now: float) -> None:
        """Request a collection, unless the user has ended the job."""
        if not self._is_over and not self.launcher.policy.interrupts:
            self.launcher.pool.send_all(Collect(goes_on=False))
        self._is_over = True

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Write a file that a host has sent."""
        assert isinstance(message, Evidence)
        name = os.path.basename(message.name)  # never outside this folder
        what = _WHAT.get(name, "native stacks")
        self._write(os.path.join(link.host.name.replace(os.sep, "_"), name), message.text, what)

    def on_summary(self, summary: "Summary", *, last: bool) -> None:
        """Write the last output of each rank, and an HTML page that lists all files."""
        if not self._files:
            return
        for rank, run in self.launcher.state.ranks.items():
            for name, text in (("out", run.stdout), ("err", run.stderr)):
                if text:
                    what = f"the last output of rank {rank}"
                    self._write(os.path.join("output", f"{rank}.{name}"), text, what)
        lines = summary.lines or ("the job has succeeded",)
        self._write("index.html", _format_page(lines, self._files), "")
        path = os.path.join(self._folder, "index.html")
        self.launcher.console.note(f"black box: {path}")

    def _write(self, name: str, text: str, what: str) -> None:
        path = os.path.join(self._folder, name)
        try:
            fd = own_paths.open_file(path, os.O_TRUNC | os.O_NONBLOCK)
            with open(fd, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            self._files[name] = what
        except OSError as error:
            self.launcher.console.note(f"--black-box: cannot write {path}: {error.strerror}")


def _format_page(lines: Iterable[str], files: dict[str, str]) -> str:
    """Return an HTML page with the job's summary and a list of the files."""
    said = "\n".join(html.escape(line) for line in lines)
    rows = "\n".join(
        f'<tr><td><a href="{html.escape(name)}">{html.escape(name)}</a><td>{html.escape(what)}'
        for name, what in sorted(files.items())
    )
    return (
        '<!doctype html>\n<meta charset="utf-8">\n<title>mcjax-launch: black box</title>\n'
        "<style>body{font:14px sans-serif;margin:2em}td{padding:.2em 1em .2em 0}</style>\n"
        f"<h1>Black box</h1>\n<pre>{said}</pre>\n<table>\n{rows}\n</table>\n"
    )


PART = BlackBox
