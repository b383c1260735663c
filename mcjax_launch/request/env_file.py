"""Files of variables for the ranks (--env-file), in the plain form of dotenv.

An error never quotes the file, whose values may be secrets.
"""

import re
from collections.abc import Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.request.text_files import read_file

_OPTION = "--env-file"
_EMPTY_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?\n")
_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=", re.ASCII)
_SINGLE = re.compile(r"[ \t]*'([^']*)'")
_DOUBLE = re.compile(r'[ \t]*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_COMMENT = re.compile(r"[ \t]#|\n")
_QUOTE = re.compile(r"[ \t]*['\"]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_variables(path: str) -> list[tuple[str, str]]:
    """Return the variables that a file sets, as pairs of name and value; later ones count.

    Raises:
        LaunchError: the file cannot be read, or a line is not valid.

    """
    return list(parse(read_file(path, _OPTION), f"{_OPTION} {path}"))


def parse(text: str, origin: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the values in the text of a file.

    Args:
        text: the text.
        origin: the file, for messages.

    Raises:
        LaunchError: a line is not valid; begins with `origin:LINE`.

    """
    text, at = text.replace("\r\n", "\n").rstrip("\n") + "\n", 0
    while at < len(text):
        if empty := _EMPTY_LINE.match(text, at):
            at = empty.end()
            continue
        try:
            name, value, at = _parse_variable(text, at)
        except ValueError as error:
            number = text.count("\n", 0, at) + 1
            raise LaunchError(f"{origin}:{number}: {error}") from None
        yield name, value


def _parse_variable(text: str, at: int) -> tuple[str, str, int]:
    """Return the name and the value that begin at a place, and the place of the next line.

    Raises:
        ValueError: there is no variable, or its value is not valid.

    """
    named = _NAME.match(text, at)
    if named is None:
        raise ValueError("write NAME=VALUE, with a name of letters, digits and _")
    begin = named.end()
    if single := _SINGLE.match(text, begin):
        value, end = single[1], single.end()
    elif double := _DOUBLE.match(text, begin):
        value, end = _ESCAPED.sub(_unescape, double[1]), double.end()
        _check_expansion(double[1].replace("\\$", ""))
    elif _QUOTE.match(text, begin):
        raise ValueError("the quote is not closed")
    else:
        found = _COMMENT.search(text, begin)
        assert found is not None
        end = found.start()
        value = text[begin:end].strip(" \t")
        _check_expansion(value)
    rest = _EMPTY_LINE.match(text, end)
    if rest is None:
        raise ValueError("text after the closing quote: quote the whole value")
    if "\0" in value:
        raise ValueError("a variable cannot hold a NUL character")
    return named[1], value, rest.end()


def _unescape(escaped: re.Match[str]) -> str:
    return _ESCAPES.get(escaped[1], escaped[0])


def _check_expansion(value: str) -> None:
    if "${" in value:
        raise ValueError(
            "${...} is not filled in: put a value that has it into single quotes, or pass it by -x"
        )
