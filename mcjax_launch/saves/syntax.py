"""Syntax check of saved Python files."""

import subprocess

# Prints `line: type: message` of the first error.
_CHECK = """\
import sys, warnings
warnings.simplefilter("ignore")
try:
    compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec", dont_inherit=True)
except SyntaxError as error:
    print(f"{error.lineno or 1}: {type(error).__name__}: {error.msg}")
except ValueError as error:  # before Python 3.12, of a zero byte
    print(f"1: SyntaxError: {error}")
"""
_MOST_S = 10.0


def find_syntax_error(path: str, python: str) -> str:
    """Return `line: type: message` of a file's syntax error; "" if there is none.

    Args:
        path: path of the file.
        python: interpreter that will run the file. If it does not exist on this machine, or cannot
            read the file, the ranks will report the error.

    """
    words = [python, "-I", "-S", "-X", "utf8", "-c", _CHECK, path]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_MOST_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()
