"""A rank's Python that imports modules and forks the ranks."""

from __future__ import annotations

from .fork_server import ForkServer

INSTEAD = ForkServer
