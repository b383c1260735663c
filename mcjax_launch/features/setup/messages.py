"""Messages about the command that makes a host ready. Its output comes as raw bytes."""

from __future__ import annotations

from ...wire.messages import Question, ToLauncher

NAME = "setup"


class SetUp(Question):
    """Question whether the command has to run on this host: answered by SetupFound or Refused.

    Args:
        command: words for the host's shell.
        env: variables that the user has set for the ranks.
        chdir, chdir_given: as in Prepare.
        chooses_python: True if the command's PATH decides which Python the ranks use.
        again: True to run the command also where it is done already.
        sent: checksum of the files that --sync has sent; "" without --sync.
        keeps: True if the host may keep what the next start needs to skip the command.

    """

    command: str
    env: dict[str, str]
    chdir: str
    chdir_given: bool
    chooses_python: bool
    again: bool
    sent: str
    keeps: bool = True


class SetupFound(ToLauncher):
    """Answer to SetUp; `done` is True if the command is done already on this host."""

    done: bool

    answers = SetUp


class RunSetup(Question):
    """Order to run the command, or (`skips`) to use what an earlier run of it has changed."""

    skips: bool


class SetupEnded(ToLauncher):
    """Notice that the command has ended: the answer to RunSetup.

    Args:
        status: exit status; below 0: minus the number of the signal that killed the shell.
        seconds: duration; 0 if the command was skipped.
        skipped: True if the command has not run.
        changed: names of the variables that the command has set or removed.
        remark: why the next start runs the command again; "" if it does not.

    """

    status: int
    seconds: float
    skipped: bool = False
    changed: tuple[str, ...] = ()
    remark: str = ""

    answers = RunSetup
