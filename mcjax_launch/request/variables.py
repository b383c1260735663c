"""Variables for ranks: --env, patterns of names, and files of them (--env-file); pure."""

import re
from collections.abc import Callable, Iterator, Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options
from mcjax_launch.request.text_files import read_file

_WILD = re.compile(r"[*?[]")
# A letter keeps `*` from handing on all variables of this machine, such as PATH and HOME.
_PATTERN = re.compile(r"(?=.*[A-Za-z])[\w*?\[\]!-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*")
# Variables of each rank's place in the job, and what sets them.
_SET_BY_LAUNCHER = {
    "JAX_PROCESS_ID": "",
    "JAX_NUM_PROCESSES": ": use -n",
    "JAX_COORDINATOR_ADDRESS": ": use --coordinator",
}
# The launcher's own options and settings, and each rank's place, which no pattern means.
_OWN = re.compile(r"_?MCJAX_")


def collect_variables(
    options: Options, environ: Mapping[str, str], say: Callable[[str], object]
) -> tuple[tuple[str, str], ...]:
    """Return the names and the values of variables for the ranks; the last of a name counts.

    Args:
        options: options of the job.
        environ: variables of this process.
        say: called with lines for --verbose.

    Raises:
        LaunchError: a variable has no valid name or no value here, or a file cannot be read.

    """
    found: list[tuple[str, str]] = []
    for path in options.env_file:
        found += (pairs := read_variables(path))
        for name, _ in pairs:
            _check_name(name, f"--env-file {path}: {name}")
        _describe(options, f"--env-file {path}", pairs, say)
    for text in options.env:
        if not is_pattern(text):
            found.append(parse_variable(text, environ))
            continue
        found += (pairs := [(name, environ[name]) for name in find_matching(text, environ)])
        _describe(options, f"-x {text}", pairs, say)
    return tuple(found)


def _describe(
    options: Options, origin: str, pairs: list[tuple[str, str]], say: Callable[[str], object]
) -> None:
    """Print the names of variables, if --verbose; never their values."""
    if options.verbose:
        say(f"{origin}: {', '.join(dict(pairs)) or 'no variables'}")


def parse_variable(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and the value of a -x option, `NAME=VALUE` or `NAME`.

    Raises:
        LaunchError: the name is not valid, or has no value here.

    """
    name, equals, value = text.partition("=")
    if is_pattern(name) and equals:
        raise LaunchError(
            f"-x {name}=...: a pattern takes the values that are set here: -x '{name}'"
        )
    if not _NAME.fullmatch(name):
        given = f"{name}=..." if equals else name  # the value may be a secret
        raise LaunchError(f"-x {given}: {name!r} is not a valid variable name")
    if equals:
        _check_name(name, f"-x {name}=...")
        return name, value
    _check_name(name, f"-x {name}")
    if name not in environ:
        raise LaunchError(f"-x {name}: not set here; write -x {name}=VALUE")
    return name, environ[name]


def _check_name(name: str, given: str) -> None:
    if (instead := _SET_BY_LAUNCHER.get(name)) is not None:
        raise LaunchError(f"{given}: the launcher sets it in each rank{instead}")


def is_pattern(text: str) -> bool:
    """Return whether a -x option is a pattern of names, such as `NCCL_*`."""
    return "=" not in text and _WILD.search(text) is not None


def find_matching(pattern: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of this process's variables that match a pattern, in order.

    Raises:
        LaunchError: the pattern has no letter, or a character that no name has.

    """
    from fnmatch import fnmatchcase

    if not _PATTERN.fullmatch(pattern):
        raise LaunchError(f"-x {pattern}: write a pattern with part of a name, such as 'NCCL_*'")
    for name in sorted(environ):
        if not _NAME.fullmatch(name) or _OWN.match(name) or name in _SET_BY_LAUNCHER:
            continue
        if fnmatchcase(name, pattern):
            yield name


# --- files of variables (--env-file), in the plain form of dotenv ---
# An error never quotes the file, whose values may be secrets.

_OPTION = "--env-file"
_EMPTY_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?\n")
_ASSIGNED = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=", re.ASCII)
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
    named = _ASSIGNED.match(text, at)
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
