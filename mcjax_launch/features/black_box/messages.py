"""Messages that bring a host's observations of a failing or hanging job to the launcher."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent, ToLauncher

NAME = "black_box"


class Attend(ToAgent):
    """Order, before the start, to collect when ranks are ended, even before the launcher asks."""


class Collect(ToAgent):
    """Request to collect now: answered by Evidence. `goes_on`: the job hangs, and is not ended."""

    goes_on: bool


class Evidence(ToLauncher):
    """File from this host, by name; a later file with the same name replaces it."""

    name: str
    text: str
