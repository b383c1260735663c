"""Whether Python can read a file that has been saved."""

import subprocess
import sys
import warnings

_COMPILE = (
    "import sys, warnings; warnings.simplefilter('ignore'); "
    "compile(open(sys.argv[1], 'rb').read(), sys.argv[1], 'exec', dont_inherit=True)"
)
_MOST_S = 10.0


def syntax_error(path: str, python: str) -> str:
    """Return the line and the message of a file's syntax error; "" if it has none.

    Args:
        path: of the file.
        python: that is to run it. Its own word counts if this one finds an error; where that
            Python is not on this machine, there is none.

    """
    found = _found_here(path)
    if found and python != sys.executable and not _is_error_of(path, python):
        return ""
    return found


def _found_here(path: str) -> str:
    try:
        with open(path, "rb") as file:
            text = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{error.lineno or 1}: {type(error).__name__}: {error.msg}"
    except ValueError as error:  # before Python 3.12, of a zero byte
        return f"1: SyntaxError: {error}"
    except (OSError, RecursionError, MemoryError):  # the ranks will tell
        return ""
    return ""


def _is_error_of(path: str, python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _COMPILE, path],
            capture_output=True,
            timeout=_MOST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode != 0
