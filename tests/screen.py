"""Emulate a terminal's screen, as far as the launcher uses it."""

import math
import re

_TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\r|\n|\x1b[78])|([^\x1b\r\n]+)")


class Screen:
    """A terminal, whose own driver makes `\\r\\n` of each newline.

    Args:
        columns: how wide it is.
        height: how many rows it shows; above them is what has been scrolled away. Endless if None.

    Attributes:
        column: where the cursor is.

    """

    def __init__(self, columns: int = 80, height: int | None = None) -> None:
        self._columns = columns
        self._height = self._scrolling = height or math.inf
        self._rows = [""] * (height or 1)
        self._top = 0
        self._row = self.column = 0
        self._saved = (0, 0)
        self._wraps, self._holds = True, False

    def write(self, text: str) -> None:
        """Show more."""
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            assert match, text[at:][:20]
            at = match.end()
            number, letter, move, plain = match.groups()
            if plain:
                for char in plain:
                    self._put(char)
            elif move == "\r":
                self.column = 0
            elif move == "\n":
                self._new_line()
            elif move == "\x1b7":
                self._saved = self._row - self._top, self.column
            elif move == "\x1b8":
                self._row, self.column = self._top + self._saved[0], self._saved[1]
            else:
                self._act(number, letter)

    def _new_line(self) -> None:
        self.column = 0
        if self._row + 1 == self._top + self._scrolling:
            self._rows.insert(self._row + 1, "")
            self._top += 1
        elif self._row + 1 == self._top + self._height:
            return
        self._row += 1
        self._rows += [""] * (self._row + 1 - len(self._rows))

    def _put(self, char: str) -> None:
        if self.column == self._columns:
            if self._wraps:
                self.write("\n")
            else:
                self.column -= 1
        row = self._rows[self._row].ljust(self.column)
        self._rows[self._row] = row[: self.column] + char + row[self.column + 1 :]
        self.column += 1

    def _act(self, number: str, letter: str) -> None:
        match number, letter:
            case ("", "J"):
                self._rows[self._row + 1 :] = [""] * (len(self._rows) - self._row - 1)
                self._rows[self._row] = self._rows[self._row][: self.column]
            case (_, "A"):
                self._row -= int(number)
                assert self._row >= self._top
            case (_, "H"):
                row, column = map(int, number.split(";"))
                self._row, self.column = self._top + row - 1, column - 1
            case (_, "r"):
                self._scrolling = int(number.removeprefix("1;")) if number else self._height
                assert 2 <= self._scrolling <= self._height
                self._row, self.column = self._top, 0
            case ("2", "K"):
                self._rows[self._row] = ""
            case ("?7", "l" | "h"):
                self._wraps = letter == "h"
            case ("?2026", "l" | "h"):
                assert self._holds is not (letter == "h"), "what is held back is shown again"
                self._holds = letter == "h"
            case (_, "m"):
                pass
            case _:
                raise AssertionError(f"what does {number}{letter} do?")

    @property
    def rows(self) -> list[str]:
        """What is to be seen, and what has been scrolled away, without empty rows at the end."""
        seen = [row.rstrip() for row in self._rows]
        while seen and not seen[-1]:
            seen.pop()
        return seen

    @property
    def shown(self) -> list[str]:
        """What is to be seen, row by row."""
        return [row.rstrip() for row in self._rows[self._top :]]
