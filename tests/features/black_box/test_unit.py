"""What a host sends home of what it sees."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.features.black_box.agent import EvidenceCollector, observations
from mcjax_launch.features.black_box.messages import Collect, Evidence


def test_late_stacks_do_not_replace_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Evidence] = []
    link = SimpleNamespace(is_remote=False, send=sent.append)
    hooks = SimpleNamespace(request_stacks=lambda all_threads: ())
    agent: Any = SimpleNamespace(hooks=hooks, pids={}, link=link)
    part = EvidenceCollector(agent)
    looks = iter(
        [
            [("native.7.txt", "Thread 1")],
            [(f"native.{n}.txt", observations.NOTHING) for n in (7, 8)],
        ]
    )
    monkeypatch.setattr(observations, "collect_files", lambda *_: next(looks))
    part.on_message(Collect(goes_on=True))
    part.on_message(Collect(goes_on=False))
    assert [file.name for file in sent] == ["native.7.txt", "native.8.txt"]
    assert sent[0].text == "Thread 1"
