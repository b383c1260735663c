"""Messages about the command that makes a host ready. Its output comes as raw bytes."""

from __future__ import annotations

from ...wire.messages import Question, ToLauncher

NAME = "setup"


class SetUp(Question):
    """Order to run the command on this host: answered by SetupEnded or Refused.

    Args:
        command: words for the host's shell.
        env: variables that the user has set for the ranks.
        chdir, chdir_given: as in Prepare.
        done: variables that an earlier run of --watch has changed here, in place of another run of
            the command; None to run it.

    """

    command: str
    env: dict[str, str]
    chdir: str
    chdir_given: bool
    done: dict[str, str | None] | None


class SetupEnded(ToLauncher):
    """Notice that the command has ended: the answer to SetUp.

    Args:
        status: exit status; below 0: minus the number of the signal that killed the shell.
        seconds: duration; 0 if the command was not run.
        after: variables that the command has set, or removed (None).
        folder: its working directory.
        python: path of the Python that its PATH has chosen; "" for none.

    """

    status: int
    seconds: float
    after: dict[str, str | None]
    folder: str
    python: str

    answers = SetUp
