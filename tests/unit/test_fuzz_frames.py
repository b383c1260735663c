"""Whatever an agent's bytes are: the launcher acts on them, or names the host that sent them.

A whole launcher hears an agent that is not there. The seed is fixed; to look further, set FUZZ_SEED
and FUZZ_CASES.
"""

import importlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch import features
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal.events import NO_EVENTS
from mcjax_launch.journal.journal import Journal
from mcjax_launch.journal.sink import Target
from mcjax_launch.journal.state import RunState
from mcjax_launch.launcher.launcher import Launcher
from mcjax_launch.machine.loop import Loop
from mcjax_launch.transport.pipes import Pipes
from mcjax_launch.wire import frames, messages
from mcjax_launch.wire.codec import Message, Nested

_SEED = os.environ.get("FUZZ_SEED", "7")
_CASES = int(os.environ.get("FUZZ_CASES", "150"))
_RANKS = 2
NUMBERS = (0, 1, 1, 0, 2, -1, 7, 64, 255, 256, 65_535, 1 << 31, -(1 << 63), 1 << 70)
TEXTS = ("", "a", "a b\n", "0", "é", "\ud800", "\x1b[2J", "/x.py:3", "jit_f", "9" * 5000, "[" * 500)
FLOATS = (0.0, 1.0, -1.0, 1e300, 1e-300)


class Agent:
    """The far end of a launcher's connection, up to the moment when ranks run."""

    def __init__(self) -> None:
        self.state = RunState(num_processes=_RANKS)
        self._loop = Loop()
        self._ends = [end for _ in range(3) for end in os.pipe()]
        front = SimpleNamespace(
            watcher=None,
            call_after_release=lambda call: call(),
            is_held=False,
            again="",
            no_terminal="",
            loop=self._loop,
            signals=None,
            events=NO_EVENTS,
            journal=Journal(),
            verbose_option="-v",
            shows_stacks="",
            open_outputs=lambda on_room: (Target(), Target()),
            explain_no_terminal=lambda: "there is none",
        )
        self._launcher = Launcher(
            Job(program=("true",), num_processes=_RANKS, python="p", chdir="/", record=True),
            [Host(name=LOCAL, slots=_RANKS)],
            SimpleNamespace(features=(), start=self._start, get_greeting_limit_s=lambda _: 60.0),  # type: ignore[arg-type]
            front=front,  # type: ignore[arg-type]
            state=self.state,
        )
        self._launcher.pool.begin()
        self.sends(frames.MAGIC)

    def _start(self, host: Host) -> Pipes:
        ours = [os.dup(self._ends[end]) for end in (1, 2, 4)]
        for fd in ours:
            os.set_blocking(fd, False)
        return Pipes(os.getpid(), ours[0], ours[1], ours[2])  # no child: nobody signals it

    def begin_ranks(self) -> None:
        for message in (FACTS, *(messages.Started(rank, 100 + rank) for rank in OWN)):
            self.sends(frames.encode_message(message))

    def sends(self, data: bytes) -> None:
        os.write(self._ends[3], data)
        self._loop.dispatch_ready(0)

    @property
    def is_trusted(self) -> bool:
        """Whether it has said nothing malformed so far; else its host is lost."""
        return not any(link.ended for link in self._launcher.links)

    def close(self) -> None:
        for link in self._launcher.links:
            link.close()
        for fd in self._ends:
            os.close(fd)
        self._loop.close()


for path in Path(features.__path__[0]).glob("*/messages.py"):  # or tests before it decide
    importlib.import_module(f"{features.__name__}.{path.parent.name}.messages")
HELLO = messages.Greeting(messages.VERSION)
FACTS = messages.HostFacts("python", "/")
OWN = range(_RANKS)
FROM_AGENT = [cls for cls in Message._named.values() if issubclass(cls, messages.ToLauncher)]


@contextmanager
def an_agent() -> Iterator[Agent]:
    agent = Agent()
    try:
        yield agent
    finally:
        agent.close()


def value(rng: random.Random, annotation: str, cls: type[Nested], name: str) -> Any:
    """Anything that a field may hold; ranks are often those that there are."""
    if annotation.endswith(" | None"):
        return None if rng.random() < 0.3 else value(rng, annotation[:-7], cls, name)
    if annotation.startswith("tuple["):
        inner = annotation[len("tuple[") : -len(", ...]")]
        return tuple(value(rng, inner, cls, name) for _ in range(rng.choice((0, 1, 1, 2, 5))))
    if annotation.startswith("dict["):
        inner = annotation[:-1].partition(", ")[2]
        return {rng.choice(TEXTS): value(rng, inner, cls, name) for _ in range(rng.randrange(3))}
    if annotation == "int":
        near = name in ("rank", "ranks", "process_id", "processes") and rng.random() < 0.8
        return rng.choice(OWN) if near else rng.choice(NUMBERS[:5] if name == "status" else NUMBERS)
    if annotation in ("str", "float", "bool"):
        return rng.choice({"str": TEXTS, "float": FLOATS, "bool": (False, True)}[annotation])
    inner_cls = vars(sys.modules[cls.__module__])[annotation]
    if issubclass(inner_cls, Message):
        family = [
            message_cls
            for message_cls in Message._named.values()
            if issubclass(message_cls, inner_cls)
        ]
        inner_cls = rng.choice(
            [message_cls for message_cls in family if not message_cls.__subclasses__()]
        )
    return some(rng, inner_cls)


def some(rng: random.Random, cls: type[Nested]) -> Any:
    return cls(*(value(rng, cls.__annotations__[name], cls, name) for name in cls._fields))


def a_frame(rng: random.Random) -> bytes:
    """A message with any values, of hooks above all; some bytes of a rank; or a random frame."""
    kind = rng.random()
    if kind < 0.5:
        return frames.encode_message(some(rng, rng.choice(FROM_AGENT)))
    if kind < 0.8:
        return frames.encode_message(some(rng, messages.FromHook))
    if kind < 0.95:
        text = rng.choice(TEXTS).encode("utf-8", "replace")
        return frames.make_data_header(rng.choice(OWN), rng.choice((1, 2)), len(text)) + text
    payload = rng.randbytes(rng.randrange(20))
    return frames.HEADER.pack(rng.randrange(6), rng.randrange(4), 0, len(payload)) + payload


@pytest.mark.parametrize("begun", [True, False], ids=["while ranks run", "before"])
def test_random_messages_do_no_harm(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where tracebacks are saved
    rng = random.Random(f"messages {begun} {_SEED}")
    for _ in range(_CASES):
        with an_agent() as agent:
            agent.sends(frames.encode_message(HELLO))
            if begun:
                agent.begin_ranks()
            for _ in range(8):
                if agent.is_trusted:
                    agent.sends(a_frame(rng))


def test_the_launcher_acts_on_what_is_well_formed() -> None:
    with an_agent() as agent:
        agent.sends(frames.encode_message(HELLO))
        agent.begin_ranks()
        agent.sends(frames.encode_message(messages.Exited(1, 3, (), None, 0.5, 1000)))
        assert agent.is_trusted and agent.state.ranks[1].status == 3
