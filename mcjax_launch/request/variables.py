"""Variables that the user sets in the ranks: -x and --env-file."""

import re
from collections.abc import Callable, Iterator, Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options

_WILD = re.compile(r"[*?[]")
# A letter keeps `*` from handing on all variables of this machine, such as PATH and HOME.
_PATTERN = re.compile(r"(?=.*[A-Za-z])[\w*?\[\]!-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*")
# The launcher's own options and settings, which no pattern means.
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
        from mcjax_launch.request.env_file import read_variables

        found += (pairs := read_variables(path))
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
        return name, value
    if name not in environ:
        raise LaunchError(f"-x {name}: not set here; write -x {name}=VALUE")
    return name, environ[name]


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
        if _NAME.fullmatch(name) and not _OWN.match(name) and fnmatchcase(name, pattern):
            yield name
