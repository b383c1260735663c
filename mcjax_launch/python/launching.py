"""`launch`, `launch_async` and `start`: run a program in N ranks, from a Python program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_command_line
from mcjax_launch.python import keywords as kw
from mcjax_launch.python.events import Deliver, InLoop, Reporter, call_now
from mcjax_launch.python.job import RunningJob
from mcjax_launch.python.keywords import add_keywords
from mcjax_launch.python.process import Request
from mcjax_launch.python.result import Result
from mcjax_launch.python.signature import Keywords, Path

if TYPE_CHECKING:
    from mcjax_launch.python.calls import CallChannel
    from mcjax_launch.python.values import RankValues

# They are looked up at each line: redirect_stdout and pytest's capture replace them.
_OWN_STREAMS = (lambda: sys.stdout, lambda: sys.stderr)
ProgramWords = Path | Sequence[Path]


def launch(program: ProgramWords, *args: object, **keywords: Unpack[Keywords]) -> Result:
    """Run a program as the processes of one multi-controller JAX job, and wait for its end.

    An exception during the wait, such as KeyboardInterrupt, ends the job and is raised
    when no process of the job is left. This process keeps its signal handlers and streams.

    Args:
        program: a Python file (*.py), a module (with `module=True`) or any other command; or a list
            of any of these and its arguments.
        args: further arguments of the program.
        keywords: the options of the command; and, for a program: `echo` prints the lines that the
            command would print; `on_line` is called with each Line of
            a rank, `on_event` with each Event. The calls are made in a thread of the job, which
            waits for them; an exception in them ends the job and is raised here.

    Returns:
        the job's result; its method `check` raises an error if the job failed.

    Raises:
        LaunchError: the job could not be started.

    """
    return make_job(program, args, keywords).run()


def start(program: ProgramWords, *args: object, **keywords: Unpack[Keywords]) -> RunningJob:
    """Start a job as `launch` does and return; the job is killed when this program ends.

    Raises:
        LaunchError: the job was refused before it began.

    """
    return make_job(program, args, keywords).start()


async def launch_async(
    program: ProgramWords, *args: object, **keywords: Unpack[Keywords]
) -> Result:
    """Run a program as `launch` does, for asyncio; cancelling the call ends the job.

    `on_line` and `on_event` are called in the event loop.
    """
    import asyncio  # needed by its users only

    deliver = InLoop(asyncio.get_running_loop())
    job = await asyncio.to_thread(make_job, program, args, keywords, deliver)
    return await job.begin()


def make_job(
    program: ProgramWords,
    args: Sequence[object],
    keywords: Mapping[str, Any],
    deliver: Deliver = call_now,
    calls: CallChannel | None = None,
    returned: RankValues | None = None,
) -> RunningJob:
    """Return the job for a call of `launch`, not started yet.

    Args:
        program: see `launch`.
        args: see `launch`.
        keywords: see `launch`.
        deliver: makes the calls of `on_line` and `on_event`, in the caller's thread or loop.
        calls: way of calls to the ranks, if they make calls.
        returned: collects what the calls return.

    Raises:
        LaunchError: a keyword has a value that its option rejects.
        TypeError: a keyword is unknown.

    """
    _refuse_while_importing()
    first = (program,) if isinstance(program, (str, os.PathLike)) else tuple(program)
    command = [_convert_word(word) for word in (*first, *args)]
    of_options = {name: value for name, value in keywords.items() if name not in kw.NO_OPTIONS}
    options = kw.make_options(command, of_options)
    given = kw.list_option_names(of_options)
    echo = keywords.get("echo")
    streams = echo if isinstance(echo, tuple) else _OWN_STREAMS if echo else None
    on_line, on_event = keywords.get("on_line"), keywords.get("on_event")
    request = Request(
        words=tuple(make_command_line(options, given)),
        hosts=options.hosts if isinstance(options.hosts, tuple) else (),
        calls=calls,
        echoes=streams is not None,
        hears_output=on_line is not None,
    )
    levels = {"say", "summary", "alarm"}
    levels |= set() if options.quiet else {"note"}
    levels |= {"detail"} if options.verbose else set()
    reporter = Reporter(on_line, on_event, deliver, levels)
    return RunningJob(os.path.basename(command[0]), request, streams, reporter, returned)


def _refuse_while_importing() -> None:
    """Raise an error in a rank that imports the main file to load a function.

    Raises:
        LaunchError: this process is such a rank.

    """
    in_rank = sys.modules.get("_mcjax_launch.features.session.messages")
    if path := getattr(in_rank, "importing", ""):
        guard = 'put that under `if __name__ == "__main__":`'
        raise LaunchError(f"{path} starts a job, also when the ranks import it: {guard}")


def _convert_word(value: object) -> str:
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)


for _function in (launch, start, launch_async):
    add_keywords(_function)
