"""`launch`, `launch_async` and `start`: a program in N ranks, from a Python program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from mcjax_launch.api import keywords as kw
from mcjax_launch.api.events import Deliver, InLoop, Reporter, at_once
from mcjax_launch.api.job import RunningJob
from mcjax_launch.api.keywords import with_keywords
from mcjax_launch.api.process import Request
from mcjax_launch.api.result import Result
from mcjax_launch.api.signature import Keywords, Path
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import command_line

if TYPE_CHECKING:
    from mcjax_launch.api.values import RankValues
    from mcjax_launch.features.function.messages import Buffer

ProgramWords = Path | Sequence[Path]


def launch(program: ProgramWords, *args: object, **keywords: Unpack[Keywords]) -> Result:
    """Run a program as the processes of one multi-controller JAX job, and wait for its end.

    An exception that interrupts the wait, such as KeyboardInterrupt, ends the job, and is raised
    when nothing of the job is left. Nothing changes in this process: no signal handler, no stream.

    Args:
        program: a Python file (*.py), a module (with `module=True`) or any other command; or a list
            of it and its arguments.
        args: further arguments of the program.
        keywords: the options of the command; and, for a program: `echo` prints the lines that the
            command would print to sys.stdout and sys.stderr; `on_line` is called with each Line of
            a rank, `on_event` with each Event. They are called in a thread of the job's, which
            waits for them; an exception in them ends the job and is raised here.

    Returns:
        how the job ended; `Result.check` raises a failure.

    Raises:
        LaunchError: the job could not be started.

    """
    return made(program, args, keywords).run()


def start(program: ProgramWords, *args: object, **keywords: Unpack[Keywords]) -> RunningJob:
    """Do as `launch`, without waiting: the job runs beside the program, and ends with it.

    Raises:
        LaunchError: the job cannot be started, as far as is known at once.

    """
    return made(program, args, keywords).start()


async def launch_async(
    program: ProgramWords, *args: object, **keywords: Unpack[Keywords]
) -> Result:
    """Do as `launch`, for asyncio: if the call is cancelled, the job ends first.

    `on_line` and `on_event` are called in the event loop.
    """
    import asyncio  # needed by its users only

    deliver = InLoop(asyncio.get_running_loop())
    job = await asyncio.to_thread(made, program, args, keywords, deliver)
    return await job.begin()


def made(
    program: ProgramWords,
    args: Sequence[object],
    keywords: Mapping[str, Any],
    deliver: Deliver = at_once,
    call: tuple[Buffer, ...] = (),
    returned: RankValues | None = None,
) -> RunningJob:
    """Return the job, which is not started yet.

    Args:
        program: see `launch`.
        args: see `launch`.
        keywords: see `launch`.
        deliver: makes the calls of `on_line` and `on_event`, where and when the caller wants.
        call: content of the call's file, if the ranks call a function.
        returned: collects the ranks' return values, if they call a function.

    Raises:
        LaunchError: a value is not what its option takes.
        TypeError: there is no such keyword.

    """
    _refuse_while_importing()
    first = (program,) if isinstance(program, (str, os.PathLike)) else tuple(program)
    command = [_word(word) for word in (*first, *args)]
    of_options = {name: value for name, value in keywords.items() if name not in kw.NO_OPTIONS}
    options = kw.options_of(command, of_options)
    given = kw.names_of(of_options)
    streams = (sys.stdout, sys.stderr) if keywords.get("echo") else None
    on_line, on_event = keywords.get("on_line"), keywords.get("on_event")
    request = Request(
        words=tuple(command_line(options, given)),
        hosts=options.hosts if isinstance(options.hosts, tuple) else (),
        call=call,
        echoes=streams is not None,
        hears_output=on_line is not None,
    )
    levels = {"say", "summary", "alarm"}
    levels |= set() if options.quiet else {"note"}
    levels |= {"detail"} if options.verbose else set()
    reporter = Reporter(on_line, on_event, deliver, levels)
    return RunningJob(os.path.basename(command[0]), request, streams, reporter, returned)


def _refuse_while_importing() -> None:
    """Refuse to start a job in a rank that only imports the main file, for a function in it.

    Raises:
        LaunchError: this process is such a rank.

    """
    in_rank = sys.modules.get("_mcjax_launch.features.function.messages")
    if path := getattr(in_rank, "importing", ""):
        guard = 'put that under `if __name__ == "__main__":`'
        raise LaunchError(f"{path} starts a job, also when the ranks import it: {guard}")


def _word(value: object) -> str:
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)


for _function in (launch, start, launch_async):
    with_keywords(_function)
