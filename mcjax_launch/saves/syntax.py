"""Syntax check of saved Python files."""

import subprocess
import sys
import warnings

_COMPILE = (
    "import sys, warnings; warnings.simplefilter('ignore'); "
    "compile(open(sys.argv[1], 'rb').read(), sys.argv[1], 'exec', dont_inherit=True)"
)
_MOST_S = 10.0


def syntax_error(path: str, python: str) -> str:
    """Return `line: type: message` of a file's syntax error; "" if there is none.

    Args:
        path: path of the file.
        python: interpreter that will run the file. An error counts only if this Python finds it
            too; if it does not exist on this machine, no error counts.

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
    except (OSError, RecursionError, MemoryError):  # the ranks will report it
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
