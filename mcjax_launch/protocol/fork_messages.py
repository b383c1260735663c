"""Messages between an agent and the fork server of its host, one packet of JSON each.

The fork server is a rank's Python that stops before the program and imports what is asked for. For
each attempt it is copied, and the ranks are forked from the copy, which then ends.
"""

from __future__ import annotations

from .codec import Message, Tagged


class ForkMessage(Tagged):
    """Any of the messages below."""


# --- fork server to agent ---


class Importing(ForkMessage):
    """It begins to import a module.

    `dump_signal` has it send its stack, as text, `dump_all_signal` those of all threads; 0: none
    does.
    """

    module: str
    dump_signal: int
    dump_all_signal: int


class Imported(ForkMessage):
    """The modules are imported, within so many seconds: it can be copied.

    `alone`: the imports have left no process that runs below it.
    """

    seconds: float
    alone: bool


class Unfit(ForkMessage):
    """It cannot fork, and has ended: the reason goes after `--preload: `."""

    reason: str


class CopyEnded(ForkMessage):
    """The copy is gone, and what it has forked are children of the agent.

    `status`: as of a wait: below 0, minus the number of a signal.
    """

    status: int


# --- a copy to the agent ---


class Forked(ForkMessage):
    """A rank has been forked; it waits for a byte on its last descriptor before it begins."""

    pid: int


class Different(ForkMessage):
    """The rank cannot be forked, for it differs in what has been used: the reason, in words."""

    reason: str


# --- agent to fork server ---


class Copy(ForkMessage):
    """Fork a copy, which is asked for ranks through the descriptor that comes with this."""


# --- agent to a copy ---


class Change(Message):
    """A variable of a rank that is not what the fork server was started with; None: unset."""

    name: str
    value: str | None


class Fork(ForkMessage):
    """Fork a rank; with it come its descriptors 0, 1 and 2, and the one to wait on.

    Args:
        argv: its command, which differs in the program's arguments at most.
        changes: of its environment.
        cores: what it may run on; empty for all.
        cwd: its working directory.

    """

    argv: tuple[str, ...]
    changes: tuple[Change, ...]
    cores: tuple[int, ...]
    cwd: str
