"""The magics: `%mcjax` starts ranks that stay, `%%mcjax` runs a cell in them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from mcjax_launch.api.call_failed import CallFailed
from mcjax_launch.api.result import JobFailed
from mcjax_launch.cells.folding import PLAIN, Bundle, prefix_lines
from mcjax_launch.cells.runner import CellRunner, format_failure
from mcjax_launch.cli.command import command, with_project_options
from mcjax_launch.cli.keywords import make_keywords
from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count

_START = "%mcjax -n 4 starts ranks"


class CellFailed(Exception):
    """Error for a cell that has failed in ranks; it is shown as their tracebacks.

    Args:
        error: what the session has raised.
        lines: lines about it.

    """

    def __init__(self, error: LaunchError, lines: list[str]) -> None:
        super().__init__(str(error))
        self._lines = lines

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback."""
        return [line.rstrip("\n") for line in self._lines]


@magics_class
class RankMagics(Magics):
    """Ranks of a notebook, or of IPython at a terminal."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._words: list[str] = []
        self._runner: CellRunner | None = None
        self._prefixes = Prefixes(shown=True, colour=False)
        shell.Completer.custom_matchers.append(self._complete)

    @line_cell_magic
    def mcjax(self, line: str, cell: str | None = None) -> None:
        """Start ranks that stay, or run a cell in them.

        %mcjax -n 4 -d 2      start ranks, by options of the command; further words are sys.argv[1:]
        %mcjax                say what runs
        %mcjax restart        start the ranks again, without their state
        %mcjax stop           end them
        %%mcjax [RANKS]       run the cell in all ranks, or in some, such as 0,2-3
        """
        try:
            if cell is not None:
                self._run(cell, line.strip())
            else:
                self._act(_split(line))
        except CallFailed as error:
            raise CellFailed(error, format_failure(error, self._prefixes)) from None
        except JobFailed as error:  # the launcher has said more
            hint = "; %mcjax restart starts new ranks" if self._runner is not None else ""
            raise CellFailed(error, [f"mcjax-launch: {error}{hint}"]) from None
        except LaunchError as error:
            told = (str(error), *getattr(error, "__notes__", ()))
            lines = [f"mcjax-launch: {line}" for line in told]
            raise CellFailed(error, lines) from None

    def _act(self, words: list[str]) -> None:
        runner = self._runner
        if words in ([], ["restart"], ["stop"]) and runner is None:
            if words == ["restart"]:
                raise LaunchError(f"no ranks run; {_START}")
            print(f"no ranks run; {_START}")
        elif words == ["stop"]:
            self.stop()
        elif words == ["restart"] and runner is not None:
            runner.restart()
            print(self._describe())
        elif not words or words == self._words:
            print(self._describe())
        elif not words[0].startswith("-"):
            raise LaunchError(f"{words[0]}: not an option, stop or restart; {_START}")
        else:
            self._start(words)

    def _start(self, words: list[str]) -> None:
        try:
            keywords, argv = _parse_words(words)
        except click.exceptions.Exit:  # --help, which has been printed
            return
        if self._runner is not None and not self._runner.is_over:
            raise LaunchError(f"{self._describe()}; %mcjax stop ends them first")
        self.stop()
        runner = CellRunner(keywords, self._prefixes, argv)
        self._runner, self._words = runner, words
        try:
            runner.begin()
        except BaseException:
            self.stop()
            raise
        print(self._describe())

    def stop(self) -> None:
        """End the ranks, if any run."""
        if self._runner is not None:
            runner, self._runner, self._words = self._runner, None, []
            runner.close()

    def _describe(self) -> str:
        if self._runner is None or self._runner.is_over:
            return f"the ranks have ended; {_START}"
        count = format_count(self._runner.session.processes, "rank")
        return f"{count} run: %mcjax {shlex.join(self._words)}"

    def _run(self, cell: str, ranks: str) -> None:
        if self._runner is None:
            raise LaunchError(f"no ranks run; {_START}")
        if self.shell is not None and self.shell.displayhook.semicolon_at_end_of_expression(cell):
            cell += "\nNone"  # the value is not shown
        for bundle, shown_by in self._runner.run(cell, ranks):
            self._show(bundle, shown_by)

    def _show(self, bundle: Bundle, ranks: list[int]) -> None:
        """Show what ranks have to show: text with their prefix, richer data below the prefix."""
        if bundle.keys() <= {PLAIN}:
            print(prefix_lines(bundle[PLAIN], ranks, self._prefixes), end="")
            return
        print(self._prefixes.format_shared_prefix(ranks).decode())
        display(dict(bundle), raw=True)

    def _complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return completions in a cell of the ranks, by the names of the first one."""
        found: list[str] = []
        if self._runner is not None and context.full_text.startswith("%%mcjax"):
            found = self._runner.complete(context.token)
        return {"completions": [SimpleCompletion(text, type="rank") for text in found]}


def _split(line: str) -> list[str]:
    """Return the words of a line, as a shell does.

    Raises:
        LaunchError: a quotation is not closed.

    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise LaunchError(f"{line.strip()}: {str(error).lower()}") from None


def _parse_words(words: list[str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return keywords of `session` for options of the command, and the words behind them.

    Raises:
        Exit: the words ask for help.
        LaunchError: an option is unknown, wrong or not for sessions.

    """
    try:
        context = command.make_context("%mcjax", list(words))
    except click.ClickException as error:
        raise LaunchError(error.format_message()) from None
    options = with_project_options(Options(**context.params), context)
    return make_keywords(options, context), options.program
