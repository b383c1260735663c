"""--debugpy: a client of the Debug Adapter Protocol, as an IDE is one, attaches to all ranks."""

import json
import random
import re
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from detached import DetachedJobs
from jobs import LIMIT_S, Jobs

DOCS = Path(__file__).parents[3] / "docs" / "failures.md"
PROGRAM = """\
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
rank, total = jax.process_index(), 0.0
for step in range(3):
    own = float(rank + step)
    total += float(process_allgather(own).sum())
print("total", total)
"""
LINE = 1 + PROGRAM.splitlines().index("    own = float(rank + step)")

pytestmark = pytest.mark.skipif(
    find_spec("debugpy") is None, reason="needs debugpy: pip install debugpy"
)


class Client:
    """A connection to the debugger of a rank; messages are JSON behind a header.

    Args:
        config: of launch.json, which an IDE sends as it is.

    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self._socket = self._connect(config["connect"]["host"], config["connect"]["port"])
        self._file = self._socket.makefile("rb")
        self._number = 0
        self._came: list[dict[str, Any]] = []

    def _connect(self, host: str, port: int) -> socket.socket:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return socket.create_connection((host, port), timeout=LIMIT_S)
            except ConnectionRefusedError:
                assert time.monotonic() < deadline

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request; its number."""
        self._number += 1
        request = {"seq": self._number, "type": "request", "command": command}
        text = json.dumps({**request, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return self._number

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """What a request is answered with."""
        return self.answer(self.send(command, **arguments))

    def answer(self, number: int) -> dict[str, Any]:
        answer = self._wait(type="response", request_seq=number)
        assert answer["success"], answer
        return dict(answer.get("body") or {})

    def event(self, name: str) -> dict[str, Any]:
        return dict(self._wait(type="event", event=name).get("body") or {})

    def _wait(self, **wanted: Any) -> dict[str, Any]:
        while True:
            for message in self._came:
                if wanted.items() <= message.items():
                    self._came.remove(message)
                    return message
            length = 0
            while header := self._file.readline().strip():
                length = int(header.partition(b":")[2])
            assert length, f"no {wanted}: {self._came}"
            self._came.append(json.loads(self._file.read(length)))

    def attach(self, program: Path, line: int) -> None:
        """Attach, have it stop at a line, and let it run."""
        self.ask("initialize", adapterID=self.config["type"], pathFormat="path")
        attached = self.send(self.config["request"], **self.config)
        self.event("initialized")
        here = {"source": {"path": str(program)}, "breakpoints": [{"line": line}]}
        [point] = self.ask("setBreakpoints", **here)["breakpoints"]
        assert point["verified"]
        self.ask("configurationDone")
        self.answer(attached)

    def value(self, stopped: dict[str, Any], expression: str) -> str:
        """An expression's value where a thread has stopped."""
        frame = self.top(stopped)["id"]
        return str(self.ask("evaluate", expression=expression, frameId=frame)["result"])

    def top(self, stopped: dict[str, Any]) -> dict[str, Any]:
        return dict(self.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"][0])

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def free_ports(count: int) -> int:
    """The first of so many ports that nobody listens on; each of the tests finds others."""
    for first in random.sample(range(20000, 30000), 100):
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
            return first
        except OSError:
            continue
    raise AssertionError("no ports")


def configurations(base: int) -> list[dict[str, Any]]:
    """Those of the documentation's launch.json, for other ports."""
    [text] = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    file = json.loads(text)
    found: list[dict[str, Any]] = file["configurations"]
    names = [config["name"] for config in found]
    assert names == ["rank 0", "rank 1"] == file["compounds"][0]["configurations"]
    for config in found:
        config["connect"]["port"] += base - 5678
    return found


def test_debug_client_attaches_to_all_ranks(jobs: Jobs, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    base = free_ports(2)
    # A limit that is over long before: none counts while an IDE debugs.
    options = ["-n", 2, "-d", 1, "--stall-timeout", "1", "--debugpy", base]
    running = jobs.start(*options, program)
    clients = [Client(config) for config in configurations(base)]
    for client in clients:
        client.attach(program, LINE)
    for step in range(3):
        for rank, client in enumerate(clients):
            stopped = client.event("stopped")
            assert stopped["reason"] == "breakpoint"
            assert client.top(stopped)["line"] == LINE
            assert client.value(stopped, "(rank, step)") == f"({rank}, {step})"
            if rank == 0 and step == 0:
                client.ask("next", threadId=stopped["threadId"])
                stopped = client.event("stopped")
                assert (stopped["reason"], client.value(stopped, "own")) == ("step", "0.0")
            client.ask("continue", threadId=stopped["threadId"])
    for client in clients:
        client.event("terminated")
    ended = running.finish()
    for client in clients:
        client.close()
    assert ended.status == 0, ended.stderr
    places = f"rank 0 at 127.0.0.1:{base}, rank 1 at 127.0.0.1:{base + 1}"
    assert f"mcjax-launch: waiting for a debugger to attach: {places}\n" in ended.stderr
    for rank in range(2):
        assert f"[{rank}] total 9.0\n" in ended.stdout


def test_debug_client_attaches_to_a_detached_job(detached: DetachedJobs, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("step = 3\nbreakpoint()\nprint('after', step)\n")
    base = free_ports(1)
    started = detached.jobs.run("--detach", "--debugpy", base, "train.py", cwd=tmp_path)
    assert f"waiting for a debugger to attach: rank 0 at 127.0.0.1:{base}" in started.report
    client = Client(configurations(base)[0])
    client.attach(tmp_path / "train.py", 3)
    stopped = client.event("stopped")
    assert client.value(stopped, "step") == "3"
    client.ask("continue", threadId=stopped["threadId"])
    client.event("terminated")
    client.close()
    shown = detached.attach(started.stdout.strip())
    assert shown.status == 0 and "[0] after 3\n" in shown.stdout
