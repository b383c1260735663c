"""Lines of the command itself, and the only handler of all its errors."""

import contextlib
import os
import signal
from collections.abc import Callable

import click

from mcjax_launch.errors import LaunchError, save_traceback
from mcjax_launch.wire import exit_status
from mcjax_launch.wording import format_one_line


def say(message: str) -> None:
    """Print a line to stderr."""
    write(f"mcjax-launch: {format_one_line(message)}\n")


def write(lines: str) -> None:
    """Write whole lines to stderr, if it has a reader."""
    with contextlib.suppress(OSError):
        os.write(2, lines.encode("utf-8", "replace"))


def print_text(text: str) -> None:
    """Print text to stdout as the bytes that it was decoded from, in any encoding of stdout."""
    click.echo(os.fsencode(text), nl=False)


def report_errors(run: Callable[[], int], before: Callable[[], object]) -> int:
    """Run a function; call `before` and print one line for an error; return the exit status."""
    try:
        return run()
    except LaunchError as error:
        before()
        say(str(error))
        return error.status
    except click.ClickException as error:
        from mcjax_launch.cli.usage_errors import in_one_line

        say(in_one_line(error))
        return exit_status.USAGE
    except (click.Abort, KeyboardInterrupt):
        return exit_status.compute_signal_status(signal.SIGINT)
    except (BrokenPipeError, SystemExit):  # click exits like this if --help has no reader
        return exit_status.READER_GONE
    except Exception as error:
        import traceback

        path = save_traceback(traceback.format_exc())
        before()
        say(f"internal error: {error!r}; please report {path}")
        return exit_status.INTERNAL_ERROR
