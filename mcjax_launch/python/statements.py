"""Cells from lines that are typed or piped: when a statement is complete; pure."""

from __future__ import annotations

import ast
import codeop
import re

# Lines at the margin that go on with the compound statement before them.
_GOES_ON = re.compile(r"(else|elif|except|finally|case)\b")
_AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Statements:
    """Collector of lines that make up statements.

    Args:
        typed: True if an empty line ends a compound statement, as at Python's prompt. Otherwise the
            next line at the margin does, so that a file can be piped.

    """

    def __init__(self, *, typed: bool) -> None:
        self._typed = typed
        self._lines: list[str] = []
        self._compile = codeop.CommandCompiler()
        self._compile.compiler.flags |= _AWAITS

    @property
    def has_begun(self) -> bool:
        """True if a statement is not complete."""
        return bool(self._lines)

    def feed(self, line: str) -> list[str]:
        """Add a line without its newline; return the statements that are complete now."""
        complete = []
        if self._lines and not self._typed and self._ends_before(line):
            complete.append(self.flush())
        if not self._lines and (not line.strip() or line.lstrip().startswith("#")):
            return complete
        self._lines.append(line)
        if (self._typed or line.strip()) and self._is_complete():
            complete.append(self.flush())
        return complete

    def flush(self) -> str:
        """Remove and return the begun statement; "" if there is none."""
        text = "".join(f"{line}\n" for line in self._lines)
        self._lines.clear()
        return text

    def _ends_before(self, line: str) -> bool:
        """Return whether a compound statement has ended before a line at the margin."""
        if not line.strip() or line[0].isspace() or line[0] == "#" or _GOES_ON.match(line):
            return False
        try:
            text = "\n".join(self._lines) + "\n"
            compile(text, "<statement>", "exec", _AWAITS, dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError):
            return False
        return True

    def _is_complete(self) -> bool:
        text = "\n".join(self._lines)
        try:
            return self._compile(text, symbol="single") is not None
        except (SyntaxError, ValueError, OverflowError):
            return True  # the ranks say what is wrong
