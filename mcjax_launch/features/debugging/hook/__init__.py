"""Patches of debuggers in a rank, so that they get the user's terminal for as long as they need it.

They are patched at the point where they begin to talk to the user. So `breakpoint()`,
PYTHONBREAKPOINT and pdb's own break points mean the same as without a launcher.
"""

from __future__ import annotations

import functools
import sys
import time

from ....hook import user_lines
from ....hook.part import RankPart
from ....wire import source_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, TracebackType
    from typing import Any

    from ....hook.agent_link import AgentLink
    from .terminal import Terminal


# Characters of an exception's message.
_MOST_REASON = 300
# Seconds that the signal to a rank may take after the debugger's refusal at the job's end.
_END_S = 1.0
_PROMPTS = ("(Pdb) ", "(jdb) ")


class Debuggers(RankPart):
    """Part that patches debuggers when they are imported, and opens one if --pdb asks for it."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        super().__init__(link, environ)
        self._known_terminal: Terminal | None = None
        self._waiting: list[Callable[[], None]] = []  # messages to print once there is a terminal

    @property
    def _terminal(self) -> Terminal:
        if self._known_terminal is None:  # not imported earlier: `import jax` imports a debugger
            from .terminal import Terminal

            self._known_terminal = Terminal(self.environ)
        return self._known_terminal

    def patch(self, module: Any) -> None:
        """Patch a debugger that the program has imported."""
        patches = {
            "pdb": self._patch_pdb,
            "IPython.terminal.debugger": self._patch_ipython,
            "pudb.debugger": self._patch_pudb,
            "jax._src.debugger.cli_debugger": self._patch_jax,
        }
        patches[module.__name__](module)

    def _patch_pdb(self, pdb: Any) -> None:
        """Patch Python's own debugger, and all that are based on it, such as ipdb."""
        cls = pdb.Pdb
        cls.set_trace = self._wrap_set_trace(cls.set_trace)
        cls.interaction = self._wrap_interaction(cls.interaction, _locate_interaction)
        cls.message = self._wrap_message(cls.message)

    def _patch_ipython(self, debugger: Any) -> None:
        """Patch IPython's debugger, which examines its terminal when it is made."""
        cls = debugger.TerminalPdb
        real = cls.__init__
        import pdb  # which IPython has imported

        @functools.wraps(real)
        def make(this: Any, *args: Any, **kwargs: Any) -> None:
            if refused := self._terminal.acquire(user_lines.find_current_line()):
                self._refuse(refused)
                pdb.Pdb.__init__(this)  # it needs no terminal, and is refused again
                return
            try:
                real(this, *args, **kwargs)
            finally:
                self._terminal.release(steps=True)

        cls.__init__ = make

    def _patch_pudb(self, debugger: Any) -> None:
        """Patch PuDB, which fills the screen."""
        cls = debugger.Debugger
        cls.set_trace = self._wrap_set_trace(cls.set_trace)
        cls.interaction = self._wrap_interaction(cls.interaction, _locate_interaction)

    def _patch_jax(self, debugger: Any) -> None:
        """Patch the debugger of `jax.debug.breakpoint()`, which runs in the middle of a program."""
        cls = debugger.CliDebugger
        cls.run = self._wrap_interaction(cls.run, _locate_jax_debugger)

    def on_failure(self, error: BaseException, traceback: TracebackType) -> None:
        """Let the user examine the exception that has ended the program."""
        if not self.asked or isinstance(error, KeyboardInterrupt):
            return
        import pdb

        from ..messages import JOB_ENDS

        kind = type(error).__name__
        refused = self._terminal.acquire(
            _locate_traceback(traceback), f"{kind}: {error}"[:_MOST_REASON]
        )
        if refused:
            if refused != JOB_ENDS:
                sys.stderr.write(f"mcjax-launch: {refused}\n")
            return
        try:
            pdb.post_mortem(traceback)
        finally:
            self._terminal.release(steps=True)  # the job ends now: no other debugger gets it

    # --- replacements of a debugger's own methods ---

    def _wrap_set_trace(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `set_trace` that acquires the terminal already at the user's line."""

        @functools.wraps(real)
        def set_trace(this: Any, frame: FrameType | None = None, *args: Any, **kwargs: Any) -> Any:
            frame = frame or sys._getframe(1)
            if _has_its_own_input(this):
                return real(this, frame, *args, **kwargs)
            if refused := self._terminal.acquire(_locate_frame(frame)):
                return self._refuse(refused)
            self._terminal.release(steps=True)
            return real(this, frame, *args, **kwargs)

        return set_trace

    def _wrap_interaction(
        self, real: Callable[..., Any], place: Callable[..., str]
    ) -> Callable[..., Any]:
        """Wrap a debugger's interactive method, so that it holds the terminal while it runs.

        A debugger with an input of its own is not affected.

        Args:
            real: the method.
            place: returns, from the method's arguments, where the debugger has stopped.

        """

        @functools.wraps(real)
        def interaction(this: Any, *args: Any, **kwargs: Any) -> Any:
            if _has_its_own_input(this):
                return real(this, *args, **kwargs)
            where = place(this, *args)
            this.nosigint = True  # when the program goes on, Ctrl-C ends the job again
            if refused := self._terminal.acquire(where):
                return self._refuse(refused)
            self._name_rank(this)
            waiting, self._waiting = self._waiting, []
            try:
                for message in waiting:
                    message()
                result = real(this, *args, **kwargs)
                if getattr(this, "quitting", False):
                    self._quit(where)
                return result
            except SystemExit:
                self._quit(where)
                raise
            finally:
                self._terminal.release(steps=_steps(this))

        return interaction

    def _refuse(self, reason: str) -> None:
        """Raise an exception with the reason, unless the program is to go on without a debugger.

        At the job's end exit without a traceback.
        """
        from ..messages import JOB_ENDS

        if reason == JOB_ENDS:
            time.sleep(_END_S)  # as a rule a signal ends this process now
            raise SystemExit(reason)
        if not self._terminal.passes:
            raise RuntimeError(reason)

    def _name_rank(self, debugger: Any) -> None:
        """Put the rank into the debugger's prompt: (Pdb 1)."""
        rank = self.environ.get("JAX_PROCESS_ID")
        if rank is not None and getattr(debugger, "prompt", None) in _PROMPTS:
            debugger.prompt = f"{debugger.prompt[:-2]} {rank}) "

    def _wrap_message(self, real: Callable[..., None]) -> Callable[..., None]:
        """Wrap `message`, so that pdb's messages wait until it has the terminal ("--Return--")."""

        @functools.wraps(real)
        def message(this: Any, *args: Any, **kwargs: Any) -> None:
            if _has_its_own_input(this) or self._terminal.is_acquired:
                real(this, *args, **kwargs)
            else:
                self._waiting.append(functools.partial(real, this, *args, **kwargs))

        return message

    def _quit(self, where: str) -> None:
        """End the job, because the user has left a debugger, unless another debugger started it."""
        if self._terminal.is_outermost:
            self._terminal.quit(where)


def _has_its_own_input(debugger: Any) -> bool:
    """Return whether a program, not the user, talks to a debugger."""
    return getattr(debugger, "stdin", None) not in (None, sys.stdin, sys.__stdin__)


def _steps(debugger: Any) -> bool:
    """Return whether a debugger will stop again soon, such as at the next line."""
    return getattr(debugger, "stoplineno", -1) != -1


def _locate_frame(frame: FrameType) -> str:
    return f"{source_lines.format_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def _locate_interaction(_: Any, frame: FrameType | None, error: Any = None, *__: Any) -> str:
    """Return where pdb has stopped: a frame, or the origin of an exception or traceback."""
    if frame is not None:
        return _locate_frame(frame)
    if isinstance(error, tuple):
        error = error[2]
    return _locate_traceback(getattr(error, "__traceback__", error))


def _locate_traceback(traceback: TracebackType | None) -> str:
    """Return where an exception comes from; "" if unknown."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    file = source_lines.format_path(traceback.tb_frame.f_code.co_filename)
    return f"{file}:{traceback.tb_lineno}"


def _locate_jax_debugger(debugger: Any) -> str:
    frame = debugger.frames[0]
    return f"{source_lines.format_path(frame.filename)}:{frame.lineno}"


PART = Debuggers
