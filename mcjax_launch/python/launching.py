"""`launch` and `start`: a program in N ranks, from a Python program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_command_line
from mcjax_launch.python import keywords as kw
from mcjax_launch.python.job import Feed, Reporter, Request, RunningJob
from mcjax_launch.python.keywords import Keywords, Path, add_keywords
from mcjax_launch.python.result import Result

ProgramWords = Path | Sequence[Path]

# They are looked up at each line: redirect_stdout and pytest's capture replace them.
_OWN_STREAMS = (lambda: sys.stdout, lambda: sys.stderr)


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


def make_job(
    program: ProgramWords,
    args: Sequence[object],
    keywords: Mapping[str, Any],
    on_values: Feed | None = None,
) -> RunningJob:
    """Return the job for a call of `launch`, not started yet.

    Args:
        program: see `launch`.
        args: see `launch`.
        keywords: see `launch`; `echo` may be functions that return the streams to print to.
        on_values: processes what calls return; None if the ranks make no calls.

    Raises:
        LaunchError: a keyword has a value that its option rejects; or this process is a rank that
            imports the main file to load a function.
        TypeError: a keyword is unknown.

    """
    in_rank = sys.modules.get("_mcjax_launch.features.session.messages")
    if path := getattr(in_rank, "importing", ""):
        guard = 'put that under `if __name__ == "__main__":`'
        raise LaunchError(f"{path} starts a job, also when the ranks import it: {guard}")
    first = (program,) if isinstance(program, (str, os.PathLike)) else tuple(program)
    command = [_convert_word(word) for word in (*first, *args)]
    of_options = {name: value for name, value in keywords.items() if name not in kw.NO_OPTIONS}
    options = kw.make_options(command, of_options)
    echo = keywords.get("echo")
    request = Request(
        name=os.path.basename(command[0]),
        words=tuple(make_command_line(options, kw.list_option_names(of_options))),
        hosts=options.hosts if isinstance(options.hosts, tuple) else (),
        echoes=echo if isinstance(echo, tuple) else _OWN_STREAMS if echo else (),
        hears_output=keywords.get("on_line") is not None,
        on_values=on_values,
    )
    levels = ["say", "summary", "alarm"]
    levels += ["detail"] if options.verbose else []
    levels += [] if options.quiet else ["note"]
    reporter = Reporter(keywords.get("on_line"), keywords.get("on_event"), levels)
    return RunningJob(request, reporter)


def _convert_word(value: object) -> str:
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)


for _function in (launch, start):
    add_keywords(_function)
