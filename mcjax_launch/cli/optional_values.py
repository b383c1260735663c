"""Options whose value may be left out, which click cannot tell from PROGRAM; pure."""

from collections.abc import Sequence

import click

_ALL = "all"


def with_values(words: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """The words of a command line, with `all` where such a value has been left out."""
    options = {name: param for param in params for name in param.opts if name.startswith("-")}
    done: list[str] = []
    ahead = list(words)
    while ahead and ahead[0].startswith("-") and ahead[0] not in ("-", "--"):
        word = ahead.pop(0)
        option = options.get(word)
        if isinstance(option, click.Option) and not option.is_flag:
            if may_be_left_out(option) and not (ahead and fits(option, ahead[0])):
                word = f"{word}={_ALL}"
            elif ahead:
                done.append(word)
                word = ahead.pop(0)
        done.append(word)
    return done + ahead


def may_be_left_out(option: click.Option) -> bool:
    """Whether its value may be: where all of its metavar is in brackets."""
    metavar = str(option.metavar)
    return metavar.startswith("[") and metavar.endswith("]")


def fits(option: click.Option, word: str) -> bool:
    """Whether the option would take this value."""
    try:
        option.type.convert(word, None, None)
    except click.UsageError:
        return False
    return True
