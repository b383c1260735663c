"""How what a host has seen of a job that fails or hangs comes to the launcher."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent, ToLauncher

NAME = "black_box"


class Attend(ToAgent):
    """Before the start: collect when ranks are ended, whoever is the first to know why."""


class Collect(ToAgent):
    """Collect now: answered by Evidence. `goes_on`: the job hangs, and is not ended."""

    goes_on: bool


class Evidence(ToLauncher):
    """A file, by its name, of this host; a later one of that name takes its place."""

    name: str
    text: str
