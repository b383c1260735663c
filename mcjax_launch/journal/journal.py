"""The journal of a job: each fact becomes known here once, and all who care read it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

Read = Callable[[object, float], object]


class Journal:
    """Facts of a job, in the order in which they become known.

    A fact is a small immutable value: a message of an agent as it came, or one of the launcher's
    own (`facts.py`). A reader is any object with methods named after the facts that it cares about:
    `on_exited(self, exited, at)` for `Exited`, with `at` in time.monotonic's seconds.

    Readers are called in this order: the state of the attempt, so that all others find it up to
    date; those of the job, which only record; and those of the attempt, which may add facts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of_job: list[object] = []
        self._state: object = None
        self._of_attempt: list[object] = []
        self._methods: dict[type, list[Read]] = {}

    def add_reader(self, reader: object) -> None:
        """Add a reader for the whole job, before the others: the first one, events, comes last."""
        self._of_job.insert(0, reader)
        self._methods.clear()

    def begin_attempt(self, state: object) -> None:
        """Drop the readers of the last attempt; `state` is that of the next one."""
        self._state, self._of_attempt = state, []
        self._methods.clear()

    def add_to_attempt(self, reader: object) -> None:
        """Add a reader that reads until the end of the attempt."""
        self._of_attempt.append(reader)
        self._methods.clear()

    def append(self, fact: object) -> None:
        """Let all readers know a fact, now."""
        now = self._clock()
        methods = self._methods.get(type(fact))
        if methods is None:
            methods = self._methods[type(fact)] = self._find_methods(type(fact))
        for read in methods:
            read(fact, now)

    def _find_methods(self, kind: type) -> list[Read]:
        name = get_method_name(kind)
        readers = (self._state, *self._of_job, *self._of_attempt)
        return [getattr(reader, name) for reader in readers if hasattr(reader, name)]


def get_method_name(kind: type) -> str:
    """Return the name of the method that reads facts of a class: `on_from_hook` for `FromHook`."""
    return "on" + re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", kind.__name__)
