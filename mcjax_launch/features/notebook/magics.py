"""The magics: `%mcjax` starts ranks that stay, `%%mcjax` runs a cell in them."""

from __future__ import annotations

import difflib
import os
import shlex
import time
import tokenize
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource
from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magics.execution import TimeitResult, _format_time
from IPython.display import display

from mcjax_launch.cli.command import command
from mcjax_launch.cli.origins import list_options_from, list_set_options
from mcjax_launch.cli.project import with_project_options
from mcjax_launch.cli.usage_errors import in_one_line
from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.notebook.cells import (
    PLAIN,
    Bundle,
    Cell,
    Output,
    format_failure,
    group_shown,
    prefix_lines,
    read_cell,
)
from mcjax_launch.features.session.client.calls import Repr
from mcjax_launch.features.session.client.progress import CallFailed
from mcjax_launch.features.session.client.session import Session, select_ranks
from mcjax_launch.job.describe import make_option_words
from mcjax_launch.options.options import Options
from mcjax_launch.python.result import JobFailed
from mcjax_launch.ranks import format_count, group_by_key

_START = "%mcjax -n 4 starts ranks"
_RESTART = "%mcjax restart starts new ranks"
_CELL = "%%mcjax"
# As the ranks find the package of the hook.
_PULL = (
    "__import__('_mcjax_launch.features.session.hook.shown', fromlist=[''])"
    ".convert_arrays({name}, {name!r})"
)
# Completes a name as Python's own prompt does.
_COMPLETE = (
    "(lambda made, text: (made.attr_matches if '.' in text else made.global_matches)(text))"
    "(__import__('rlcompleter').Completer(globals()), {text!r})"
)
# A loop of %timeit takes so long at least.
_LOOP_S = 0.2
_MOST_LOOPS = 10**7
_PREFIXES = Prefixes(shown=True, colour=False)


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
        self._shell: Any = shell
        self._words: list[str] = []
        self._session: Session | None = None
        self._output = Output()
        self._actions: dict[str, Callable[..., Any]] = {
            "restart": self._restart,
            "stop": self.stop,
            "session": self._get_session,
            "pull": self._pull,
            "push": self._push,
        }
        shell.Completer.custom_matchers.append(self._make_matcher())

    @line_cell_magic
    def mcjax(self, line: str, cell: str | None = None) -> Any:
        """Start ranks that stay, or run a cell in them.

        %mcjax -n 4 -d 2      start ranks, by options of the command; further words are sys.argv[1:]
        %mcjax                say what runs
        %mcjax restart        start the ranks again, without their state
        %mcjax stop           end them
        %mcjax session        the session, as in: ranks = %mcjax session
        %mcjax pull x [RANKS] give x here the values of x there: a list, or of one rank the value
        %mcjax push x [RANKS] give x there the value of x here
        %%mcjax [RANKS]       run the cell in all ranks, or in some, such as 0,2-3
        """
        was_over = self._session is not None and self._session.is_over
        try:
            if cell is not None:
                return self._run(cell, line.strip())
            return self._act(split_words(line))
        except CallFailed as error:
            raise CellFailed(error, format_failure(error, _PREFIXES)) from None
        except JobFailed as error:  # the launcher has said more
            hint = f"; {_RESTART}" if self._session is not None else ""
            over = "the ranks have ended: " if was_over else ""
            line = f"mcjax-launch: {over}{error.result.message}{hint}"
            raise CellFailed(error, [line]) from None
        except LaunchError as error:
            told = (str(error), *getattr(error, "__notes__", ()))
            lines = [f"mcjax-launch: {line}" for line in told]
            raise CellFailed(error, lines) from None

    # --- %mcjax ---

    def _act(self, words: list[str]) -> Any:
        if not words:
            print(self._describe())
        elif words[0].startswith("-"):
            self._start(words)
        elif words[0] not in self._actions:
            near = difflib.get_close_matches(words[0], self._actions, 1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._actions)}"
            raise LaunchError(f"{words[0]}: neither an option nor a word of %mcjax; {known}")
        else:
            return self._actions[words[0]](*words[1:])
        return None

    def _start(self, words: list[str]) -> None:
        if words == self._words and self._session is not None and not self._session.is_over:
            print(self._describe())
            return
        try:
            keywords, argv = parse_words(words)
        except click.exceptions.Exit:  # --help, which has been printed
            return
        if self._session is not None and not self._session.is_over:
            raise LaunchError(f"{self._describe()}; %mcjax stop ends them first")
        self.stop()
        shown = {"collapse": "always", **keywords, "color": "never", "no_prefix": False}
        keywords = {**shown, "echo": self._output.streams}
        self._session = session = Session(keywords, initialize=True, argv=argv)
        self._words = words
        try:
            self._call(session, session.__enter__)
        except BaseException:
            self.stop()
            raise
        print(self._describe())

    def _restart(self) -> None:
        session = self._get_session()
        self._call(session, session.restart)
        print(self._describe())

    def stop(self) -> None:
        """End the ranks, if any run."""
        if self._session is not None:
            session, self._session, self._words = self._session, None, []
            self._call(session, session.close)

    def _get_session(self) -> Session:
        if self._session is None:
            raise LaunchError(f"no ranks run; {_START}")
        return self._session

    def _call(self, session: Session, call: Callable[[], Any]) -> Any:
        """Make a call of a session, and print meanwhile what its ranks print."""
        return self._output.print_during(call, session.interrupt)

    def _exec(self, source: str, ranks: str, **more: Any) -> list[Any]:
        """Run a text that no user has typed; return its values in order of rank."""
        session = self._get_session()
        found: list[Any] = self._call(session, lambda: session.exec(source, ranks or None, **more))
        return found

    def _pull(self, name: str = "", ranks: str = "") -> None:
        self._get_session()
        _check_name("pull", name)
        try:
            values = self._exec(_PULL.format(name=name), ranks, name=f"<pull {name}>")
        except CallFailed as error:
            raise LaunchError(f"pull: {error}") from None
        if kept := next((value for value in values if isinstance(value, Repr)), None):
            raise LaunchError(
                f"pull: {name} stays in its rank, because it cannot be pickled: {kept}"
            )
        self._shell.user_ns[name] = values[0] if ranks.isdigit() else values

    def _push(self, name: str = "", ranks: str = "") -> None:
        self._get_session()
        _check_name("push", name)
        if name not in self._shell.user_ns:
            raise LaunchError(f"push: the notebook has no variable {name}")
        values = {name: self._shell.user_ns[name]}
        self._exec("", ranks, name=f"<push {name}>", values=values)

    def _describe(self) -> str:
        if self._session is None:
            return f"no ranks run; {_START}"
        if self._session.is_over:
            return f"the ranks have ended; {_RESTART}"
        return (
            f"{format_count(self._session.processes, 'rank')} run: %mcjax {shlex.join(self._words)}"
        )

    # --- %%mcjax ---

    def _run(self, text: str, ranks: str) -> Any:
        """Run a cell; return the value of its last expression if one rank alone has run it."""
        session = self._get_session()
        cell = read_cell(text, self._shell.transform_cell)
        if cell.timed == "timeit":
            return self._time(session, cell, ranks)
        began = time.monotonic()
        try:
            return self._run_python(session, cell.source or cell.line, ranks)
        finally:
            if cell.timed:
                print(f"Wall time: {_format_time(time.monotonic() - began)}")

    def _run_python(self, session: Session, source: str, ranks: str) -> Any:
        if self._is_quiet(source):
            source += "\nNone"  # the value is not shown
        chosen = select_ranks(ranks or None, session.processes)
        if len(chosen) > 1:
            found = self._call(session, lambda: session.show(source, chosen))
            for bundle, shown_by in group_shown(chosen, found):
                _show(bundle, shown_by)
            return None
        shown, value = self._call(session, lambda: session.show_one(source, chosen[0]))
        if not value and shown and shown[0].keys() <= {PLAIN}:
            value = [Repr(shown.pop(0)[PLAIN])]
        for bundle in shown:
            _show(bundle, list(chosen))
        return value[0] if value else None

    def _is_quiet(self, source: str) -> bool:
        """Return whether a cell ends with a semicolon behind its last expression."""
        try:
            return bool(self._shell.displayhook.semicolon_at_end_of_expression(source))
        except (SyntaxError, tokenize.TokenError):  # the ranks tell of it
            return False

    def _time(self, session: Session, cell: Cell, ranks: str) -> None:
        """Show how long a statement takes, in loops of the same length in all ranks."""
        options, rest = self.parse_options(
            cell.line, "n:r:p:tcqo", posix=False, strict=False, preserve_non_opts=True
        )
        statement, setup = (cell.source, rest or "pass") if cell.source else (rest, "pass")

        def run(number: int, repeat: int) -> list[list[float]]:
            call = f"{statement!r}, {setup!r}, globals=globals(), number={number}, repeat={repeat}"
            return self._exec(f"__import__('timeit').repeat({call})", ranks, name="<timeit>")

        run(1, 1)  # it compiles
        number, repeat = int(options.get("n", 0)), max(1, int(options.get("r", 7)))
        if not number:
            number = 1
            while max(map(max, run(number, 1))) < _LOOP_S and number < _MOST_LOOPS:
                number *= 10
        chosen = select_ranks(ranks or None, session.processes)
        precision = int(options.get("p", 3))
        told = (
            str(TimeitResult(number, repeat, min(times), max(times), times, 0, precision))
            for times in run(number, repeat)
        )
        for text, alike in group_by_key(zip(told, chosen, strict=True)).items():
            print(prefix_lines(text, alike, _PREFIXES), end="")

    # --- completion ---

    def _make_matcher(self) -> Callable[[CompletionContext], SimpleMatcherResult]:
        """Return the completer of cells of the ranks, by the names of the first rank."""

        @context_matcher(identifier="mcjax")  # without it, IPython passes a text
        def match(context: CompletionContext) -> SimpleMatcherResult:
            if self._session is None or not context.full_text.startswith(_CELL):
                return {"completions": []}
            found: Any = []
            if context.token:
                source = _COMPLETE.format(text=context.token)
                try:
                    [found] = self._session.exec(source, 0, name="<completion>")
                except LaunchError:
                    found = []
            texts = [text.rstrip("() ") for text in found] if isinstance(found, list) else []
            completions = [SimpleCompletion(text, type="rank") for text in texts]
            return {"completions": completions, "suppress": bool(texts)}

        made: Callable[[CompletionContext], SimpleMatcherResult] = match
        return made


def _show(bundle: Bundle, ranks: list[int]) -> None:
    """Show what ranks have to show: text with their prefix, richer data below the prefix."""
    if bundle.keys() <= {PLAIN}:
        print(prefix_lines(bundle[PLAIN], ranks, _PREFIXES), end="")
        return
    print(_PREFIXES.format_shared_prefix(ranks).decode())
    display(dict(bundle), raw=True)


def _check_name(action: str, name: str) -> None:
    if not name.isidentifier():
        what = f"{name!r} is not a variable's name" if name else "name a variable"
        raise LaunchError(f"{action}: {what}: %mcjax {action} x [RANKS]")


# --- options of `%mcjax` ---

# By the names of options.
_REASONS = {
    **dict.fromkeys(
        ("check", "dry_run", "emit", "jobs", "json", "attach", "stop", "wait"),
        "run it as a command, as in !mcjax-launch --check",
    ),
    **dict.fromkeys(
        ("max_restarts", "on_rank_failure"),
        "%mcjax restart starts the ranks again, without their state",
    ),
    "pdb": "an exception is shown with your frames, below the cell",
    **dict.fromkeys(("module", "wrap"), "cells take the place of a program"),
    "detach": "the ranks stay until %mcjax stop or the kernel's end",
    "events": "the session reads them; open one with mcjax_launch.session(on_event=...)",
    "no_hook": "it makes the ranks run cells",
    "num_hosts": "give --hosts: the ranks of all hosts run cells",
    "status": "output appears below the cell",
    "stdin": "ranks of cells have no standard input",
}
# Variables of a kernel that choose how matplotlib shows pictures; in ranks, they cannot be shown.
_OF_KERNELS = ("module://matplotlib_inline", "module://ipykernel")
_BACKEND = "MPLBACKEND=module://_mcjax_launch.features.session.hook.figures"


def split_words(line: str) -> list[str]:
    """Return the words of a line, as a shell does.

    Raises:
        LaunchError: a quotation is not closed.

    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise LaunchError(f"{line.strip()}: {str(error).lower()}") from None


def parse_words(words: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return keywords of `session` for options of the command, and the words behind them.

    Raises:
        Exit: the words ask for help.
        LaunchError: an option is unknown, wrong or not for notebooks.

    """
    try:
        context = command.make_context("%mcjax", list(words))
    except click.ClickException as error:
        raise LaunchError(in_one_line(error)) from None
    options = with_project_options(Options(**context.params), context)
    keywords = _make_keywords(options, context)
    if os.environ.get("MPLBACKEND", "").startswith(_OF_KERNELS):
        keywords["env"] = [_BACKEND, *keywords.get("env", ())]  # the user's own come later
    return keywords, options.program


def _make_keywords(options: Options, context: click.Context) -> dict[str, Any]:
    """Return the keywords for options that the words, a variable or the project sets.

    Raises:
        LaunchError: an option is not for notebooks.

    """
    typed = list_options_from(context, ParameterSource.COMMANDLINE)
    keywords: dict[str, Any] = {"processes": None}  # as many as the command starts
    for name in list_set_options(context):
        option = Options.declared[name]
        if option.only_command and option.in_project and name not in typed:  # for other commands
            continue
        if why := _REASONS.get(name) or option.only_command:
            raise LaunchError(f"{option.long} is not for notebooks: {why}")
        words = make_option_words(options, name)
        value = list(words[1::2]) if option.repeats else words[1] if option.kind else bool(words)
        keywords[option.keyword or name] = value
    return keywords
