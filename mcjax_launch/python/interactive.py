"""--interactive: a prompt whose statements run in the ranks; a client of the API."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.util import decode_source

import click

from mcjax_launch.cli.keywords import make_keywords
from mcjax_launch.console.prefix import Prefixes, wants_colour
from mcjax_launch.detached.folders import get_state_folder
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.options.options import Options
from mcjax_launch.python.call_failed import CallFailed
from mcjax_launch.python.cells.folding import PLAIN, prefix_lines
from mcjax_launch.python.cells.runner import CellRunner, format_failure, print_lines
from mcjax_launch.python.result import JobFailed
from mcjax_launch.python.session import select_ranks
from mcjax_launch.python.statements import Statements
from mcjax_launch.ranks import format_count, format_ranges, group_by_key
from mcjax_launch.request import ready
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.exit_status import compute_signal_status

_PROMPT, _MORE = ">>> ", "... "
# Statements that end the prompt: in a rank, they would end the rank.
_ENDS = ("exit", "exit()", "quit", "quit()")
_RANKS = "%ranks"
_MOST_HISTORY = 10_000
# Options that are the prompt's own.
_OWN = ("interactive", "module", "no_prefix", "color")


def interact(options: Options, context: click.Context) -> int:
    """Run PROGRAM, if there is one, and then a prompt until its input ends; return the exit status.

    Args:
        options: options of the command line.
        context: click's context.

    Raises:
        LaunchError: the ranks could not be started, or have ended.

    """
    is_typed = sys.stdin.isatty()
    colour = wants_colour(options.color, sys.stdout.isatty(), os.environ)
    prefixes = Prefixes(shown=not options.no_prefix, colour=colour)
    keywords = make_keywords(options, context, _OWN)
    argv, program = _prepare_program(options) if options.program else ((), [])
    _take_signals()
    _choose_import_path(options)
    runner = CellRunner(keywords, prefixes, argv)
    try:
        runner.begin()
        prompt = Prompt(runner, prefixes)
        for cell, name in program:
            prompt.run_cell(cell, name)
        if is_typed:
            with _line_editing(runner):
                status = prompt.run_typed()
        else:
            status = prompt.run_piped(sys.stdin)
        runner.session.raise_failure()
        return status
    except JobFailed as error:  # as the launcher has said
        return error.status
    finally:
        runner.close()


def _choose_import_path(options: Options) -> None:
    """Let the ranks, which import from this process's folders, import from their own folder last.

    There it hides no module of Python's or of a package.
    """
    if not sys.flags.safe_path:
        del sys.path[0]
    sys.path.append(os.path.abspath(options.chdir or ""))


def _take_signals() -> None:
    """Have Ctrl-C interrupt the statement, and other signals end the ranks, then this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _end)
    gc.enable()  # the command's first lines have disabled it


def _end(signum: int, _frame: object) -> None:
    raise LaunchError(f"ended by {signal.Signals(signum).name}", compute_signal_status(signum))


def _prepare_program(options: Options) -> tuple[Sequence[str], list[tuple[str, str]]]:
    """Return PROGRAM with its arguments, and texts that run it, with their names in tracebacks.

    Raises:
        LaunchError: there is no such program, or it cannot be read.

    """
    job, _ = ready.prepare(options, os.environ, lambda line: None)
    return job.program, list(_make_program_cells(job))


def _make_program_cells(job: Job) -> Iterator[tuple[str, str]]:
    program = job.program[0]
    if job.module:
        yield _format_start(os.path.abspath(job.chdir)), f"<start of {program}>"
        # As `python -m` does, in `__main__` itself: the names stay, also behind an exception.
        yield f"__import__('runpy')._run_module_as_main({program!r})", f"<-m {program}>"
        return
    path = os.path.abspath(os.path.join(job.chdir, program))
    try:
        with open(path, "rb") as file:
            source = decode_source(file.read())
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError(f"{program}: {why}", exit_status.USAGE) from None
    start = _format_start(os.path.dirname(path))
    yield f"{start}\n__file__ = {path!r}", f"<start of {program}>"
    yield source, path


def _format_start(folder: str) -> str:
    """Return statements that set sys.argv and sys.path as Python does for a program."""
    return f"import sys; del sys.argv[0]; sys.path.insert(0, {folder!r}); del sys"


class Prompt:
    """Prompt for statements that the ranks run.

    Args:
        runner: the ranks.
        prefixes: style of the prefixes of lines.

    """

    def __init__(self, runner: CellRunner, prefixes: Prefixes) -> None:
        self._runner = runner
        self._prefixes = prefixes
        self._ranks = ""  # that run statements; all if empty
        self._status = 0  # 1 if a statement has failed; that of sys.exit()

    def run_typed(self) -> int:
        """Run statements that are typed at a terminal, until Ctrl-D; return the exit status.

        That is 0, whatever has failed, unless the ranks were told to exit with another.
        """
        processes = format_count(self._runner.session.processes, "rank")
        print(f"{processes}; %ranks 0,2 chooses some, Ctrl-C interrupts, Ctrl-D ends", flush=True)
        statements = Statements(typed=True)
        while True:
            prefix = f"[{self._ranks}] " if self._ranks else ""
            try:
                line = input(prefix + (_MORE if statements.has_begun else _PROMPT))
            except EOFError:
                print(flush=True)
                return 0
            except KeyboardInterrupt:
                statements.flush()
                print("\nKeyboardInterrupt", flush=True)
                continue
            self._status = 0
            if not self._feed(statements, line):
                return self._status

    def run_piped(self, lines: Iterator[str]) -> int:
        """Run statements from a pipe or file; return the exit status: 1 if one has failed."""
        statements = Statements(typed=False)
        for line in lines:
            if not self._feed(statements, line.rstrip("\r\n")):
                break
        else:
            if statements.has_begun:
                self._run_statement(statements.flush())
        return self._status

    def _feed(self, statements: Statements, line: str) -> bool:
        """Run what is complete with a line; return False to end."""
        if line.startswith("%"):
            if statements.has_begun and not self._run_statement(statements.flush()):
                return False
            self._act(line)
            return True
        return all(map(self._run_statement, statements.feed(line)))

    def _run_statement(self, text: str) -> bool:
        """Run a statement; return False to end: all ranks have been told to exit."""
        if text.strip() in _ENDS:
            return False
        error = self.run_cell(text)
        if error is None or not self._is_exit(error):
            return True
        codes = [getattr(each.exception, "code", None) for each in error.errors]
        failed = [code if isinstance(code, int) else exit_status.FAILED for code in codes if code]
        self._status = failed[0] if failed else self._status
        for code, ranks in group_by_key(zip(codes, range(len(codes)), strict=True)).items():
            if isinstance(code, str):
                print_lines(prefix_lines(code, ranks, self._prefixes), is_error=True)
        return False

    def _is_exit(self, error: CallFailed) -> bool:
        """Return whether all ranks have called sys.exit(), which ends the prompt."""
        exits = [each for each in error.errors if isinstance(each.exception, SystemExit)]
        return not error.restarted and len(exits) == self._runner.session.processes

    def _act(self, line: str) -> None:
        """Obey a line that begins with `%`."""
        name, _, ranks = line.partition(" ")
        if name == _RANKS:
            self._choose(ranks.strip())
        else:
            self._refuse(f"{name}: there is only %ranks [RANKS]")

    def _refuse(self, why: str) -> None:
        self._status = exit_status.FAILED
        print_lines(self._prefixes.format_own_line(why), is_error=True)

    def _choose(self, ranks: str) -> None:
        """Choose the ranks that run the next statements; "" or "all" for all."""
        ranks = "" if ranks == "all" else ranks
        try:
            chosen = select_ranks(ranks or None, self._runner.session.processes)
        except LaunchError as error:
            self._refuse(str(error))
        else:
            self._ranks = format_ranges(chosen) if ranks else ""

    def run_cell(self, source: str, name: str | None = None) -> CallFailed | None:
        """Run a text, and show what it has to show, or its failure; return the failure.

        Args:
            source: the text.
            name: stands in place of a file in tracebacks; None for a number.

        Raises:
            LaunchError: the ranks have ended.

        """
        try:
            shown = self._runner.run(source, self._ranks, name)
        except CallFailed as error:
            if not (is_regular_end(error) if name else self._is_exit(error)):
                self._status = exit_status.FAILED
                for text in format_failure(error, self._prefixes):
                    print_lines(text, is_error=True)
            return error
        for bundle, ranks in shown:
            print_lines(prefix_lines(bundle[PLAIN], ranks, self._prefixes), is_error=False)
        return None


def is_regular_end(error: CallFailed) -> bool:
    """Return whether all ranks have called sys.exit() without a failure, as programs do."""
    return not error.restarted and all(
        isinstance(each.exception, SystemExit) and not each.exception.code for each in error.errors
    )


# --- editing of lines ---


@contextlib.contextmanager
def _line_editing(runner: CellRunner) -> Iterator[None]:
    """Give `input` a history, which is kept, and completion of the first rank's names."""
    try:
        import readline

        path = os.path.join(os.path.dirname(get_state_folder()), "history")
    except (ImportError, LaunchError):  # Python was built without it, or there is no folder
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_MOST_HISTORY)
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = runner.complete(text)
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            readline.write_history_file(path)
